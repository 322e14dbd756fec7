package codex

import "github.com/happyd/happyd/adapters"

var _ adapters.CwdReader = (*Provider)(nil)

// RecordCwd implements adapters.CwdReader: the records that open a thread and a turn name the directory of all that follows. That
// of a single command does not count.
func (*Provider) RecordCwd(data []byte) string {
	v := adapters.Fields(data, "type", "payload", "cwd")
	switch adapters.String(v[0]) {
	case "session_meta", "turn_context":
		return adapters.String(adapters.Fields(v[1], "cwd")[0])
	}
	return adapters.String(v[2])
}

package claude

import (
	"encoding/json"

	"github.com/happyd/happyd/adapters"
)

var _ adapters.ProcessParser = Provider{}

// ParseProcess implements adapters.ProcessParser for ~/.claude/sessions/<pid>.json. The file is rewritten in place, so that a
// reader may meet half of it.
func (Provider) ParseProcess(data []byte) (adapters.ProcessFile, bool) {
	if !json.Valid(data) {
		return adapters.ProcessFile{}, false
	}
	v := adapters.Fields(data, "pid", "procStart", "sessionId", "status", "statusUpdatedAt", "updatedAt")
	f := adapters.ProcessFile{
		PID: int(adapters.Int(v[0])), Start: adapters.String(v[1]), Session: adapters.String(v[2]),
		Status: adapters.String(v[3]), StatusAt: adapters.Int(v[4]),
	}
	if f.Start == "" && len(v[1]) > 0 && v[1][0] != '"' {
		f.Start = string(v[1])
	}
	if f.StatusAt == 0 {
		f.StatusAt = adapters.Int(v[5])
	}
	return f, f.PID > 0 && f.Session != ""
}

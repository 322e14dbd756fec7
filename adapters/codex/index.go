package codex

import (
	"strings"

	"github.com/happyd/happyd/adapters"
)

// ParseIndexLine reads one record of session_index.jsonl: the name of a thread, given by Codex or its user. Later records win. at is
// in Unix ms. For the named session an adapters.ObserveTitle passes the name on.
func ParseIndexLine(data []byte) (thread, name string, at int64, ok bool) {
	v := adapters.Fields(data, "id", "thread_name", "updated_at")
	thread, name, at = strings.ToLower(adapters.String(v[0])), strings.TrimSpace(adapters.String(v[1])), parseTime(adapters.String(v[2]))
	return thread, name, at, isUUID(thread) && name != ""
}

package relay

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/happyd/happyd/internal/nodetest"
)

// The published client library, unchanged, in both of its encryptions.
func TestHappyLibrary(t *testing.T) {
	if _, err := os.Stat(filepath.Join(nodetest.Dir(t), "happy", "node_modules", "happy")); err != nil {
		t.Skip("skipping the test with the published happy library: run `npm ci` in test/node/happy first")
	}
	for variant, again := range map[string]any{"legacy": []any{true, "a title", 2, 121}, "dataKey": nil} {
		t.Run(variant, func(t *testing.T) {
			b := newBench(t)
			b.relay.now = time.Now // the library sends its own times
			in := fmt.Appendf(nil, `{"url":%q,"home":%q,"variant":%q}`, b.url, t.TempDir(), variant)
			var seen map[string]any
			if err := json.Unmarshal(nodetest.Run(t, "happy/lib.mjs", in), &seen); err != nil {
				t.Fatal(err)
			}
			want := object{
				"created": object{"path": "/p", "versions": []int{0, 0}}, "read": true, "onServer": true, "fromApp": "hello from the app",
				"title": "a title", "rpc": true, "machine": "h", "active": false,
				"updates": []string{"new-machine", "update-machine", "update-session"},
			}
			if again != nil {
				want["again"] = again
			}
			if got := compact(seen); got != compact(want) {
				t.Errorf("the library saw\n%s\nwant\n%s", got, compact(want))
			}
		})
	}
}

func TestOfficialSocketClient(t *testing.T) {
	nodetest.Dir(t)
	b := newBench(t)
	var seen map[string]any
	if err := json.Unmarshal(nodetest.Run(t, "relay_client.mjs", fmt.Appendf(nil, `{"url":%q}`, b.url)), &seen); err != nil {
		t.Fatal(err)
	}
	want := object{
		"refusals": []string{
			"Missing authentication token", "Invalid authentication token",
			"Session ID required for session-scoped clients", "Machine ID required for machine-scoped clients",
		},
		"posted":   true,
		"metadata": object{"result": "success", "version": 1, "metadata": "bmV3"},
		"mismatch": object{"result": "version-mismatch", "version": 1, "metadata": "bmV3"},
		"state":    object{"result": "success", "version": 1, "agentState": "c3RhdGU="},
		"ping":     object{}, "schema": []string{}, "order": true, "messages": true, "hasMore": false, "registered": true, "rpc": true,
	}
	if got := compact(seen); got != compact(want) {
		t.Errorf("the official client saw\n%s\nwant\n%s", got, compact(want))
	}
}

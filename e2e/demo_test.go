//go:build unix

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestDemo plays the demo faster than a new session is held back: it must wait for the events that it promises.
func TestDemo(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, "demo", "--speed", "50")
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if text := string(out); strings.Count(text, "subagent ends") != 3 || !strings.Contains(text, "turn completed") {
		t.Errorf("the demo shows\n%s", text)
	}
}

// TestIngestAlone pipes a stream in while no daemon runs.
func TestIngestAlone(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	conf := filepath.Join(home, "config.yaml")
	if err := os.WriteFile(conf, []byte("relay: {listen: \"127.0.0.1:0\"}\nlog: {file: none}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, "ingest", "codex", "--config", conf)
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_STATE_HOME=", "XDG_DATA_HOME=", "XDG_CONFIG_HOME=")
	cmd.Stdin = strings.NewReader(`{"type":"thread.started","thread_id":"019fa000-0000-7000-8000-0000000000aa"}
{"type":"turn.started"}
{"type":"item.completed","item":{"id":"item_0","type":"agent_message","text":"All quiet."}}
{"type":"turn.completed","usage":{"input_tokens":3,"cached_input_tokens":0,"output_tokens":2}}
`)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if left, _ := filepath.Glob(filepath.Join(home, ".local", "state", "happyd", "spool", "codex", "*")); len(left) > 0 {
		t.Errorf("left in the spool: %v", left)
	}
}

package claude_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/adapters/claude"
	"github.com/happyd/happyd/internal/pumptest"
	"github.com/happyd/happyd/internal/streamcheck"
	"github.com/happyd/happyd/protocol"
)

var update = flag.Bool("update", false, "write the expected files anew; read the difference before you commit it")

// TestGolden maps every home in testdata/<case>/home and compares with expected.txt beside it. A new case is a new folder: write
// the home, run with -update, and read what came out. The same homes are read in random orders with restarts.
func TestGolden(t *testing.T) {
	homes, err := filepath.Glob("testdata/*/home")
	if err != nil || len(homes) == 0 {
		t.Fatal("no cases", err)
	}
	for _, home := range homes {
		dir := filepath.Dir(home)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			got := mapHome(t, home)
			file := filepath.Join(dir, "expected.txt")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			pumptest.AnyOrder(t, claude.Provider{}, home, 4)
		})
	}
}

// mapHome renders all sessions of a home, one after the other.
func mapHome(t *testing.T, home string) string {
	var b strings.Builder
	sessions := pumptest.ReadHome(t, claude.Provider{}, home)
	ids := make([]string, 0, len(sessions))
	for id := range sessions {
		ids = append(ids, id)
	}
	sort.Strings(ids)
	for _, id := range ids {
		var last adapters.Session
		envs := pumptest.Feed(t, claude.Provider{}, id, sessions[id], pumptest.Run{Each: func(s adapters.Session) { last = s }})
		for _, bad := range streamcheck.Check(envs) {
			t.Errorf("session %s: %s", id, bad)
		}
		for _, open := range streamcheck.Open(envs) {
			t.Errorf("session %s leaves open: %s", id, open)
		}
		fmt.Fprintf(&b, "session %s title %q\n", id, last.Facts().Title)
		b.WriteString(render(envs))
		counts := last.Status().Counts
		kinds := make([]string, 0, len(counts))
		for k := range counts {
			kinds = append(kinds, k)
		}
		sort.Strings(kinds)
		for _, k := range kinds {
			fmt.Fprintf(&b, "left out: %s %d\n", k, counts[k])
		}
	}
	return b.String()
}

// render writes one line an envelope, with ids replaced by what they mean: T1 the first turn, S1 the first subagent, C1 the first call.
func render(envs []protocol.Envelope) string {
	names := map[string]string{}
	name := func(prefix, id string) string {
		if id == "" {
			return "-"
		}
		k := prefix + id
		if names[k] == "" {
			n := 1
			for other := range names {
				if strings.HasPrefix(other, prefix) {
					n++
				}
			}
			names[k] = fmt.Sprint(prefix, n)
		}
		return names[k]
	}
	var b strings.Builder
	for _, e := range envs {
		fmt.Fprintf(&b, "%s %s %s", name("T", e.Turn), name("S", e.Subagent), e.Ev.T)
		switch ev := e.Ev; ev.T {
		case protocol.TypeText:
			if ev.Thinking {
				b.WriteString(" thinking")
			}
			fmt.Fprintf(&b, " %s %q", e.Role, ev.Text)
		case protocol.TypeService:
			fmt.Fprintf(&b, " %q", ev.Text)
		case protocol.TypeToolStart:
			args := string(ev.Args)
			for k, v := range names {
				if strings.HasPrefix(k, "S") {
					args = strings.ReplaceAll(args, k[1:], v)
				}
			}
			if sub := subagentOf(ev); sub != "" {
				args = strings.ReplaceAll(args, sub, name("S", sub))
			}
			fmt.Fprintf(&b, " %s %s %q %q %s", name("C", ev.Call), ev.Name, ev.Title, ev.Description, args)
		case protocol.TypeToolEnd:
			fmt.Fprintf(&b, " %s", name("C", ev.Call))
		case protocol.TypeStart:
			fmt.Fprintf(&b, " %q", ev.Title)
		case protocol.TypeTurnEnd:
			fmt.Fprintf(&b, " %s", ev.Status)
		}
		if e.Usage != nil {
			fmt.Fprintf(&b, " usage %d/%d", e.Usage.InputTokens, e.Usage.OutputTokens)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func subagentOf(ev protocol.Event) string {
	return adapters.String(adapters.Fields(ev.Args, "sessionSubagent")[0])
}

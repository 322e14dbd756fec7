//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/happyd/happyd/e2e/harness"
	"github.com/happyd/happyd/internal/streamcheck"
	"github.com/happyd/happyd/protocol"
)

// replaySpeed is how much faster than recorded logs are written.
const replaySpeed = 15

// TestLiveRecordings writes real agents' logs in their recorded order and (shortened) time: a child may be complete on disk long
// before the line that spawns it.
func TestLiveRecordings(t *testing.T) {
	t.Parallel()
	root := shared(t, "corpus/claude/live")
	for _, dir := range recordings(t, root) {
		name, _ := filepath.Rel(root, dir)
		t.Run(filepath.ToSlash(name), func(t *testing.T) {
			t.Parallel()
			m := machine(t, harness.Options{})
			m.Start()
			readRecording(t, dir).play(t, m, replaySpeed)
			m.Settle()
			streams := byNative(t, mustStreams(t, m))
			var got []string
			for _, id := range slices.Sorted(maps.Keys(streams)) {
				s := streams[id]
				for _, problem := range streamcheck.Check(s.Envs) {
					t.Errorf("%s %s", id, problem)
				}
				for _, open := range streamcheck.Open(s.Envs) {
					t.Errorf("%s: %s is still open", id, open)
				}
				got = append(got, outline(s.Envs))
			}
			if want, ok := outlines[filepath.ToSlash(name)]; ok {
				slices.Sort(got)
				slices.Sort(want)
				g, w := strings.Join(got, "\n"), strings.Join(want, "\n")
				either := strings.ReplaceAll(regexp.QuoteMeta(w), `\?`, "[!x]")
				if !regexp.MustCompile("^" + either + "$").MatchString(g) {
					t.Errorf("got\n%s\nwant\n%s", g, w)
				}
			}
			m.Stop()
		})
	}
}

// outlines are the recordings that are looked at closely: what a reader of the chat should see, thread by thread.
//
// A thread is written as its events: U what the user said, ( and ) a turn, with the sign of its end behind it (nothing: completed,
// ! failed, x cancelled, ? either), t a text, k a thought, the names of tools, Name>Title for a call that spawned a subagent. Threads are
// separated by " / ", a subagent's begins with its title and ends with a dot when it was stopped.
var outlines = map[string][]string{
	"s01-plain":               {"U(t)"},
	"s02-thinking":            {"U(kt)", "U(kt Bash t Read t)"},
	"s03-tools":               {"U(t Bash Read t Write Edit Grep Glob t Bash Read Edit NoSuchTool Bash TodoWrite TaskCreate TaskUpdate TaskList Bash Bash t)(t)"},
	"s03b-tools-staggered":    {"U(kt Bash Bash t)"},
	"s04a-agent-one":          {"U(t Agent>Count files t) / Count files: kt Bash t ."},
	"s04b-agent-three":        {"U(t Agent>Agent A Agent>Agent B Agent>Agent C t) / Agent A: t Bash t Bash t . / Agent B: t Read t . / Agent C: Bash t ."},
	"s04c-agent-nested":       {"U(t Agent>Outer t) / Inner: t Bash t . / Outer: t Agent>Inner t ."},
	"s04d-agent-background":   {"U(t Agent>Slow job t)(t) / Slow job: t Bash t ."},
	"s04e-agent-default":      {"U(t Agent>Default job t)(t) / Default job: t Bash t ."},
	"s04g-agent-failing":      {"U(t Agent>Doomed Agent>Bad type t) / Doomed: t Bash ."},
	"s04l-agent-staggered":    {"U(t Agent>Stag A Agent>Stag B tt) / Stag A: t Bash t Bash t . / Stag B: t Read t ."},
	"s06a-api-retry":          {"U(t)"},
	"s06b-api-final-failure":  {"U()!", "U()!", "U()!", "U()!", "U()!"},
	"s06c-broken-stream":      {"U(tt)", "U(tt)"},
	"s06d-interactive-errors": {"U()!U(t)U()!U()!"},
	"s08a-interactive-basic":  {"U(t)U(t Bash Read t Write Edit Grep Glob t Bash)!"},
	"s08b-esc-stream":         {"U(ktt)xU(t)"},
	"s08c-esc-tool":           {"U(t Bash)xU(t)"},
	"s08d-queue":              {"U(t Bash Ut)U(t)"},
	"s08f-deny":               {"U(t Write)xU(t Bash t)"},
	"s08f2-deny-no":           {"U(t Bash)xU(t Write Ut)"},
	"s08h-ask":                {"U(t AskUserQuestion t)U(t AskUserQuestion)x"},
	"s08o-held-interactive":   {"U(t Agent>Held tt) / Held: t Read t ."},
	"s08r-esc-before-output":  {"UU(t)"},
	"s10a-kill9-streaming":    {"UU(t)"},
	// At this speed the next process may come before the death of the first is noticed: then its prompt supersedes the turn.
	"s10b-kill9-tool":        {"U(t Bash)?U(t)"},
	"s10f-sigint-agents":     {"U(t Agent>Slow A Agent>Slow B)x / Slow A: t Bash . / Slow B: t Bash ."},
	"s10i-kill9-interactive": {"U(t Bash)?U(t)"},
}

// outline writes a stream as outlines are written.
func outline(envs []protocol.Envelope) string {
	titles := map[string]string{} // of subagents
	threads := map[string]*strings.Builder{"": {}}
	put := func(e protocol.Envelope, format string, args ...any) {
		if threads[e.Subagent] == nil {
			threads[e.Subagent] = &strings.Builder{}
		}
		fmt.Fprintf(threads[e.Subagent], format, args...)
	}
	for _, e := range envs {
		switch e.Ev.T {
		case protocol.TypeText:
			switch {
			case e.Role == protocol.RoleUser && e.Subagent == "":
				put(e, "U")
			case e.Role == protocol.RoleUser:
			case e.Ev.Thinking:
				put(e, "k")
			default:
				put(e, "t")
			}
		case protocol.TypeTurnStart:
			put(e, "(")
		case protocol.TypeTurnEnd:
			put(e, ")%s", map[protocol.Status]string{protocol.StatusFailed: "!", protocol.StatusCancelled: "x"}[e.Ev.Status])
		case protocol.TypeToolStart:
			var args struct{ Description, SessionSubagent string }
			_ = json.Unmarshal(e.Ev.Args, &args)
			if args.SessionSubagent != "" {
				titles[args.SessionSubagent] = args.Description
				put(e, " %s>%s ", e.Ev.Name, args.Description)
			} else {
				put(e, " %s ", e.Ev.Name)
			}
		case protocol.TypeStop:
			put(e, " .")
		}
	}
	var kids []string
	for sub, b := range threads {
		if sub != "" {
			kids = append(kids, titles[sub]+": "+tidy(b.String()))
		}
	}
	slices.Sort(kids)
	return strings.Join(append([]string{tidy(threads[""].String())}, kids...), " / ")
}

func tidy(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	return strings.NewReplacer(" )", ")", "( ", "(").Replace(s)
}

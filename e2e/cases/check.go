package cases

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/happyd/happyd/e2e/harness"
	"github.com/happyd/happyd/internal/streamcheck"
)

// Check says what is wrong with the streams that a server holds after the case's input, nothing if all is well.
//
// Where a disturbed daemon read a parent's log to its end before it met the child's, only the order within each thread is
// promised; for Codex, whose parents do not wait for their children, the sequences are then matched thread by thread.
func (c *Case) Check(streams []harness.Stream, mode Mode) (bad []string) {
	fail := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	by, err := harness.ByNative(streams)
	if err != nil {
		return []string{err.Error()}
	}
	seen := map[string]bool{}
	native := c.nativeIDs()
	all := map[string][]envelope{}
	for id, s := range by {
		if s.Replaced > 0 && c.Kind != "net" {
			fail("%s %d messages were replaced", short(id), s.Replaced)
		}
		for _, problem := range streamcheck.Check(s.Envs) {
			fail("%s %s", short(id), problem)
		}
		if slices.Contains(c.Invariants, "calls-closed") {
			for _, open := range streamcheck.Open(s.Envs) {
				if open[:4] == "call" {
					fail("%s %s was never closed", short(id), open)
				}
			}
		}
		for i, e := range s.Envs {
			if seen[e.ID] {
				fail("%s[%d] envelope id %s twice", short(id), i, e.ID)
			}
			seen[e.ID] = true
			if slices.Contains(c.Invariants, "no-native-subagent") && native[e.Subagent] {
				fail("%s[%d] a provider's id is used as subagent: %s", short(id), i, e.Subagent)
			}
			d, err := decode(s.Raw[i])
			if err != nil {
				fail("%s[%d] %v", short(id), i, err)
			}
			all[id] = append(all[id], d)
			for _, p := range c.Forbid {
				if _, hit := p.match(d, nil); hit {
					fail("%s[%d] forbidden %s: %s", short(id), i, p, cut(d.raw))
				}
			}
		}
	}
	for id, want := range c.Sessions {
		for _, problem := range want.check(all[id], mode != Plain && c.Needs("codex")) {
			fail("%s %s", short(id), problem)
		}
	}
	return bad
}

func short(id string) string { return id[max(0, len(id)-12):] }

func cut(s string) string { return s[:min(len(s), 300)] }

func (s Session) check(envs []envelope, byThread bool) (bad []string) {
	fail := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	for _, p := range s.Forbid {
		for _, e := range envs {
			if _, hit := p.match(e, nil); hit {
				fail("forbidden %s: %s", p, cut(e.raw))
			}
		}
	}
	for _, c := range s.Count {
		n := 0
		for _, e := range envs {
			if _, hit := c.Pattern.match(e, nil); hit {
				n++
			}
		}
		var span []int
		if json.Unmarshal(c.N, &span) != nil || len(span) != 2 {
			var exact int
			if err := json.Unmarshal(c.N, &exact); err != nil {
				fail("count: %v", err)
			}
			span = []int{exact, exact}
		}
		if n < span[0] || n > span[1] {
			fail("%s matches %d times, want %s", c.Pattern, n, c.N)
		}
	}
	var kept []envelope
	for _, e := range envs {
		if !slices.ContainsFunc(s.Ignore, func(p Pattern) bool { _, hit := p.match(e, nil); return hit }) {
			kept = append(kept, e)
		}
	}
	seqs, err := s.sequences()
	if err != nil {
		fail("sequence: %v", err)
	}
	if byThread && !s.Exact {
		var split [][]Pattern
		for _, seq := range seqs {
			split = append(split, threads(seq)...)
		}
		seqs = split
	}
	for _, seq := range seqs {
		check := subsequence
		if s.Exact {
			check = exact
		}
		use := envs
		if s.Exact {
			use = kept
		}
		if problem := check(seq, use); problem != "" {
			fail("%s", problem)
		}
	}
	return bad
}

func (s Session) sequences() ([][]Pattern, error) {
	var one []Pattern
	if err := json.Unmarshal(s.Sequence, &one); err == nil {
		return [][]Pattern{one}, nil
	}
	var many [][]Pattern
	err := json.Unmarshal(s.Sequence, &many)
	return many, err
}

// threads takes a sequence apart by what its patterns say of the subagent.
func threads(seq []Pattern) (out [][]Pattern) {
	at := map[string]int{}
	for _, p := range seq {
		name := text(p["subagent"])
		i, ok := at[name]
		if !ok {
			i = len(out)
			at[name] = i
			out = append(out, nil)
		}
		out[i] = append(out[i], p)
	}
	return out
}

func subsequence(seq []Pattern, envs []envelope) string {
	var b Bindings
	i := 0
next:
	for _, p := range seq {
		for ; i < len(envs); i++ {
			if nb, hit := p.match(envs[i], b); hit {
				b = nb
				i++
				continue next
			}
		}
		return "not found in order: " + p.String() + dump(envs)
	}
	return ""
}

func exact(seq []Pattern, envs []envelope) string {
	var b Bindings
	for i, p := range seq {
		if i >= len(envs) {
			return fmt.Sprintf("the stream ended at %d, expected %s%s", i, p, dump(envs))
		}
		nb, hit := p.match(envs[i], b)
		if !hit {
			return fmt.Sprintf("position %d: expected %s, got %s%s", i, p, cut(envs[i].raw), dump(envs))
		}
		b = nb
	}
	if len(envs) > len(seq) {
		return fmt.Sprintf("extra envelope %s%s", cut(envs[len(seq)].raw), dump(envs))
	}
	return ""
}

// dump lists a stream for a failed test.
func dump(envs []envelope) string {
	out := "\n    the stream:"
	for i, e := range envs {
		if i == 60 {
			return out + "\n    …"
		}
		out += fmt.Sprintf("\n    %3d %v", i, cut(e.raw[:len(e.raw)-1]))
	}
	return out
}

var idPattern = regexp.MustCompile(`toolu_\w+|call_\w+|agent-([0-9a-z]+)|"agentId": ?"(\w+)"`)

// nativeIDs finds what the provider calls its tool calls and agents in the input.
func (c *Case) nativeIDs() map[string]bool {
	out := map[string]bool{}
	_ = filepath.WalkDir(c.In(""), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		for _, m := range idPattern.FindAllStringSubmatch(string(b)+filepath.Base(path), -1) {
			for _, id := range m {
				if id != "" {
					out[id] = true
				}
			}
		}
		return err
	})
	return out
}

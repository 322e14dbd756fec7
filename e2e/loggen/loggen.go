// Package loggen writes logs as Claude Code 2.1.332 does: whole API messages held back until they are complete, subagents that
// are done on disk before the line that spawns them, nested and side by side, with sidecar files and the noise between.
//
// Options flow in, a list of writes in their order flows out; Writer puts them below a home. The same options give the same bytes.
// It is for tests only, and its texts are invented.
package loggen

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path"
	"strconv"
	"strings"
	"time"
)

// Options describe one session.
type Options struct {
	ID    string // a UUID
	Slug  string // folder below projects/; "" = "-home-me-work"
	Cwd   string // "" = "/home/me/work"
	Seed  uint64
	Turns int
	// Steps is how many tool calls or groups of subagents a turn has at most; 0 = 4.
	Steps int
	// Start is the time of the first record; zero = a fixed day.
	Start time.Time
	// NoAgents leaves subagents out.
	NoAgents bool
}

// Write is one change below projects/: bytes appended to a log, or a small file replaced in one step.
type Write struct {
	Path    string
	Data    []byte
	Replace bool
	Quick   bool // follows the write before at once
	Records int
}

// Session makes a session's writes.
func Session(o Options) []Write {
	if o.Slug == "" {
		o.Slug = "-home-me-work"
	}
	if o.Cwd == "" {
		o.Cwd = "/home/me/work"
	}
	if o.Steps == 0 {
		o.Steps = 4
	}
	if o.Start.IsZero() {
		o.Start = time.Date(2026, 10, 1, 9, 0, 0, 0, time.UTC)
	}
	g := &generator{o: o, rng: rand.New(rand.NewPCG(o.Seed, 77)), at: o.Start, main: path.Join(o.Slug, o.ID+".jsonl")}
	main := &thread{path: g.main}
	var out []Write
	for n := range o.Turns {
		out = append(out, g.turn(main, n)...)
	}
	return out
}

// Records counts the records of a list of writes.
func Records(all []Write) (n int) {
	for _, w := range all {
		n += w.Records
	}
	return n
}

type generator struct {
	o      Options
	rng    *rand.Rand
	at     time.Time
	main   string
	uuids  int
	calls  int
	agents int
	msgs   int
	prompt string
}

// thread is one conversation: the main one or a subagent's.
type thread struct {
	path   string
	agent  string // id, "" for the main thread
	depth  int
	parent string // uuid of the latest record
}

func (g *generator) uuid() string {
	g.uuids++
	return fmt.Sprintf("%s%05x", g.o.ID[:31], g.uuids)
}

// line makes one record of a thread and moves its chain on. fields are JSON, with a comma at their end.
func (g *generator) line(t *thread, kind, fields string) []byte {
	g.at = g.at.Add(time.Duration(5+g.rng.IntN(400)) * time.Millisecond)
	id := g.uuid()
	parent := "null"
	if t.parent != "" {
		parent = strconv.Quote(t.parent)
	}
	t.parent = id
	agent := ""
	if t.agent != "" {
		agent = `"agentId":"` + t.agent + `",`
	}
	return fmt.Appendf(nil, `{"parentUuid":%s,"isSidechain":%t,%s"promptId":"%s",%s"type":"%s","uuid":"%s","timestamp":"%s","userType":"external","entrypoint":"cli","cwd":"%s","sessionId":"%s","version":"2.1.332","gitBranch":"trunk"}`+"\n",
		parent, t.agent != "", agent, g.prompt, fields, kind, id, g.at.Format("2006-01-02T15:04:05.000Z"), g.o.Cwd, g.o.ID)
}

func (g *generator) write(t *thread, lines ...[]byte) Write {
	return Write{Path: t.path, Data: bytes.Join(lines, nil), Records: len(lines)}
}

// block is one content block of an assistant's message.
func (g *generator) block(t *thread, content, stop string, index int) []byte {
	return g.line(t, "assistant", fmt.Sprintf(`"message":{"id":"msg_%s%d","type":"message","role":"assistant","model":"claude-opus-5-5","content":[%s],"stop_reason":"%s","stop_sequence":null,"usage":{"input_tokens":%d,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":12}},"apiBlockIndex":%d,`,
		g.o.ID[:8], g.msgs, content, stop, 20+g.msgs, index))
}

func (g *generator) text(s string) string { return fmt.Sprintf(`{"type":"text","text":%q}`, s) }

var words = strings.Fields("river lantern copper meadow anchor willow thunder pebble orchard harbour violet granite ember saddle marble thistle")

func (g *generator) say(n int) string {
	out := make([]string, n)
	for i := range out {
		out[i] = words[g.rng.IntN(len(words))]
	}
	return strings.Join(out, " ")
}

// noise is what nobody sees.
func (g *generator) noise(t *thread) []byte {
	kind := []string{"environment", "prompt_snapshot", "date", "skill_listing"}[g.rng.IntN(4)]
	return g.line(t, "attachment", fmt.Sprintf(`"attachment":{"type":"%s","content":%q},`, kind, g.say(30)))
}

func (g *generator) user(t *thread, text string, typed bool) []byte {
	origin := `"rowSource":"recorded",`
	if typed {
		origin = `"promptSource":"typed","origin":{"kind":"human"},"turnOrigin":"human",`
	}
	return g.line(t, "user", fmt.Sprintf(`"message":{"role":"user","content":%q},%s`, text, origin))
}

func (g *generator) result(t *thread, call, text, more string) []byte {
	return g.line(t, "user", fmt.Sprintf(`"message":{"role":"user","content":[{"tool_use_id":"%s","type":"tool_result","content":%q,"is_error":false}]},%s`, call, text, more))
}

// turn is a prompt and everything until the agent is done.
func (g *generator) turn(t *thread, n int) []Write {
	g.prompt = g.uuid()
	out := []Write{g.write(t, g.user(t, fmt.Sprintf("Task %d: %s", n, g.say(5)), true), g.noise(t))}
	for range 1 + g.rng.IntN(g.o.Steps) {
		out = append(out, g.step(t)...)
	}
	g.msgs++
	out = append(out, g.write(t, g.block(t, g.text(fmt.Sprintf("Turn %d done: %s.", n, g.say(6))), "end_turn", 0)))
	return append(out, g.write(t,
		g.line(t, "system", fmt.Sprintf(`"subtype":"turn_duration","durationMs":%d,"isMeta":false,`, 1000+n)),
		fmt.Appendf(nil, `{"type":"last-prompt","lastPrompt":"Task %d","leafUuid":"%s","sessionId":"%s"}`+"\n", n, t.parent, g.o.ID)))
}

// step is one API message with tools, and their results.
func (g *generator) step(t *thread) []Write {
	if !g.o.NoAgents && t.depth < 2 && g.rng.IntN(3) == 0 {
		return g.spawn(t)
	}
	g.msgs++
	g.calls++
	call := fmt.Sprintf("toolu_%s%05d", g.o.ID[:8], g.calls)
	var lines [][]byte
	if g.rng.IntN(2) == 0 {
		lines = append(lines, g.block(t, fmt.Sprintf(`{"type":"thinking","thinking":%q,"signature":"c2ln"}`, g.say(8)), "tool_use", 0))
	}
	lines = append(lines, g.block(t, g.text(g.say(7)), "tool_use", len(lines)))
	lines = append(lines, g.block(t, fmt.Sprintf(`{"type":"tool_use","id":"%s","name":"Bash","input":{"command":%q,"description":%q}}`, call, "echo "+g.say(2), g.say(3)), "tool_use", len(lines)))
	return []Write{g.write(t, lines...), g.write(t, g.noise(t), g.result(t, call, g.say(20), `"toolUseResult":{"stdout":"ok","stderr":"","interrupted":false},`))}
}

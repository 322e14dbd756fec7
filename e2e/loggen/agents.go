package loggen

import (
	"fmt"
	"strings"
)

// child is a subagent in the making.
type child struct {
	thread
	call   string
	title  string
	final  string
	writes []Write
}

// spawn is an API message that calls one to three subagents at once. They start while the message still streams, and its lines
// are written only when it is complete: before, amid, or long after theirs.
func (g *generator) spawn(t *thread) []Write {
	g.msgs++
	msg := g.msgs
	kids := make([]*child, 1+g.rng.IntN(3))
	for i := range kids {
		kids[i] = g.child(t)
	}
	latest := g.msgs
	g.msgs = msg // the message began before theirs
	blocks := [][]byte{g.block(t, g.text("Asking others about the "+g.say(1)+"."), "tool_use", 0)}
	for i, k := range kids {
		blocks = append(blocks, g.block(t, fmt.Sprintf(`{"type":"tool_use","id":"%s","name":"Agent","input":{"description":%q,"prompt":%q,"subagent_type":"general-purpose","run_in_background":false}}`,
			k.call, k.title, k.prompt()), "tool_use", i+1))
	}
	g.msgs = latest
	message := g.write(t, blocks...)

	woven, ends := g.weave(kids)
	var at int // how many of the children's writes come before the message
	switch g.rng.IntN(3) {
	case 0: // the children are complete before
		at = len(woven)
	case 1: // they start after
	default:
		at = g.rng.IntN(len(woven) + 1)
	}
	out := append([]Write{}, woven[:at]...)
	out = append(out, message)
	for i := at; i <= len(woven); i++ {
		for k, end := range ends {
			if max(end, at) == i {
				out = append(out, g.write(t, g.handBack(t, kids[k])))
			}
		}
		if i < len(woven) {
			out = append(out, woven[i])
		}
	}
	return out
}

func (k *child) prompt() string { return "Look into it: " + k.title }

// child makes a subagent with everything that it writes.
func (g *generator) child(parent *thread) *child {
	g.agents++
	g.calls++
	k := &child{call: fmt.Sprintf("toolu_%s%05d", g.o.ID[:8], g.calls), title: fmt.Sprintf("Helper %d %s", g.agents, g.say(1))}
	k.agent = fmt.Sprintf("a%s%08x", g.o.ID[:8], g.agents)
	k.depth = parent.depth + 1
	base := strings.TrimSuffix(g.main, ".jsonl") + "/subagents/agent-" + k.agent
	k.path = base + ".jsonl"
	meta := func(more string) Write {
		link := ""
		if parent.agent != "" {
			link = `"parentAgentId":"` + parent.agent + `",`
		}
		return Write{Path: base + ".meta.json", Replace: true, Data: fmt.Appendf(nil,
			`{"agentType":"general-purpose","isBuiltIn":true,"description":%q,"toolUseId":"%s",%s"spawnDepth":%d,"requestShape":"foreground"%s}`,
			k.title, k.call, link, k.depth, more)}
	}
	t := &k.thread
	k.writes = append(k.writes, meta(""), g.write(t, g.user(t, k.prompt(), false), g.noise(t)))
	for range 1 + g.rng.IntN(2) {
		k.writes = append(k.writes, g.step(t)...)
	}
	g.msgs++
	k.final = "Found: " + g.say(5) + "."
	k.writes = append(k.writes, g.write(t, g.block(t, g.text(k.final), "end_turn", 0)), meta(`,"finished":true`))
	return k
}

// weave mixes the children's writes, each child's in their order. ends says for each child after how many writes its result is
// written: after its last one, or, now and then, while its last lines are still on their way.
func (g *generator) weave(kids []*child) (all []Write, ends []int) {
	ends = make([]int, len(kids))
	next, early := make([]int, len(kids)), make([]int, len(kids))
	for i := range kids {
		early[i] = []int{0, 0, 0, 1, 2}[g.rng.IntN(5)]
	}
	for left := len(kids); left > 0; {
		i := g.rng.IntN(len(kids))
		k := kids[i]
		if next[i] == len(k.writes) {
			continue // it is done
		}
		all = append(all, k.writes[next[i]])
		next[i]++
		if next[i] == len(k.writes)-early[i] {
			ends[i] = len(all)
			for _, w := range k.writes[next[i]:] {
				w.Quick = true // late, but not by much
				all = append(all, w)
			}
			next[i] = len(k.writes)
			left--
		}
	}
	return all, ends
}

// handBack is the parent's result of a child.
func (g *generator) handBack(t *thread, k *child) []byte {
	return g.result(t, k.call, "(hand-back) "+k.final, fmt.Sprintf(
		`"toolUseResult":{"status":"completed","prompt":%q,"agentId":"%s","agentType":"general-purpose","content":[{"type":"text","text":%q}],"totalTokens":40,"totalToolUseCount":1,"totalDurationMs":900},`,
		k.prompt(), k.agent, k.final))
}

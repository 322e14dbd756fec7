// Package streamcheck says whether a session's stream of envelopes keeps the promises that clients build on. Tests use it on
// whatever a mapper, a daemon or a relay holds; it is never part of the daemon.
package streamcheck

import (
	"encoding/json"
	"fmt"

	"github.com/happyd/happyd/protocol"
)

// Check returns every broken promise of one session's stream, in server order: valid envelopes with unique ids, strictly rising
// times, turns opened before they are used and closed once, calls opened and closed once, subagent content only between start
// and stop and only below a card that names it.
func Check(envs []protocol.Envelope) []string {
	c := checker{
		ids: map[string]bool{}, started: map[string]bool{}, ended: map[string]bool{},
		calls: map[string]bool{}, closed: map[string]bool{}, running: map[string]bool{}, cards: map[string]bool{},
	}
	for i, e := range envs {
		c.at = fmt.Sprintf("[%d %s]", i, e.Ev.T)
		c.envelope(e)
	}
	return c.bad
}

// Open lists what a finished stream still holds open: turns, calls and subagents.
func Open(envs []protocol.Envelope) []string {
	open := map[string]bool{}
	for _, e := range envs {
		switch e.Ev.T {
		case protocol.TypeTurnStart:
			open["turn "+e.Turn] = true
		case protocol.TypeTurnEnd:
			delete(open, "turn "+e.Turn)
		case protocol.TypeToolStart:
			open["call "+e.Ev.Call] = true
		case protocol.TypeToolEnd:
			delete(open, "call "+e.Ev.Call)
		case protocol.TypeStart:
			open["subagent "+e.Subagent] = true
		case protocol.TypeStop:
			delete(open, "subagent "+e.Subagent)
		}
	}
	var out []string
	for k := range open {
		out = append(out, k)
	}
	return out
}

type checker struct {
	bad            []string
	at             string
	last           int64
	ids            map[string]bool
	started, ended map[string]bool
	calls, closed  map[string]bool
	running        map[string]bool
	cards          map[string]bool
}

func (c *checker) fail(format string, args ...any) {
	if len(c.bad) < 50 {
		c.bad = append(c.bad, c.at+" "+fmt.Sprintf(format, args...))
	}
}

func (c *checker) envelope(e protocol.Envelope) {
	if err := e.Validate(); err != nil {
		c.fail("invalid: %v", err)
	}
	if c.ids[e.ID] {
		c.fail("id %s twice", e.ID)
	}
	c.ids[e.ID] = true
	if e.Time <= c.last {
		c.fail("time %d after %d", e.Time, c.last)
	}
	c.last = e.Time
	c.turn(e)
	c.call(e)
	if e.Subagent != "" {
		c.subagent(e)
	}
}

func (c *checker) turn(e protocol.Envelope) {
	if e.Turn == "" {
		return
	}
	switch {
	case e.Ev.T == protocol.TypeTurnStart:
		if c.started[e.Turn] {
			c.fail("second turn-start")
		}
		c.started[e.Turn] = true
	case !c.started[e.Turn]:
		c.fail("turn was not started")
	case c.ended[e.Turn] && e.Subagent == "":
		c.fail("after turn-end")
	}
	if e.Ev.T == protocol.TypeTurnEnd {
		c.ended[e.Turn] = true
	}
}

func (c *checker) call(e protocol.Envelope) {
	switch e.Ev.T {
	case protocol.TypeToolStart:
		if c.calls[e.Ev.Call] {
			c.fail("call %s started twice", e.Ev.Call)
		}
		c.calls[e.Ev.Call] = true
		var args struct {
			SessionSubagent string `json:"sessionSubagent"`
		}
		if json.Unmarshal(e.Ev.Args, &args) == nil && args.SessionSubagent != "" {
			c.cards[args.SessionSubagent] = true
		}
	case protocol.TypeToolEnd:
		if !c.calls[e.Ev.Call] {
			c.fail("call %s ended without start", e.Ev.Call)
		}
		if c.closed[e.Ev.Call] {
			c.fail("call %s ended twice", e.Ev.Call)
		}
		c.closed[e.Ev.Call] = true
	}
}

func (c *checker) subagent(e protocol.Envelope) {
	if !c.cards[e.Subagent] {
		c.fail("no card names subagent %s: the app would show it flat", e.Subagent)
		c.cards[e.Subagent] = true
	}
	switch e.Ev.T {
	case protocol.TypeStart:
		if c.running[e.Subagent] {
			c.fail("second start of subagent %s", e.Subagent)
		}
		c.running[e.Subagent] = true
	case protocol.TypeStop:
		if !c.running[e.Subagent] {
			c.fail("stop of subagent %s that does not run", e.Subagent)
		}
		c.running[e.Subagent] = false
	default:
		if !c.running[e.Subagent] {
			c.fail("content of subagent %s outside start and stop", e.Subagent)
		}
	}
}

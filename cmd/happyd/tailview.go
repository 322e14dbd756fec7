package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/happyd/happyd/control"
	"github.com/happyd/happyd/protocol"
)

// Escape sequences of the terminal view.
const (
	styleReset  = "\x1b[0m"
	styleDim    = "\x1b[2m"
	styleBold   = "\x1b[1m"
	styleRed    = "\x1b[31m"
	styleGreen  = "\x1b[32m"
	styleYellow = "\x1b[33m"
	styleCyan   = "\x1b[36m"
)

// tailView prints envelopes, one line each. It is not safe for concurrent use.
type tailView struct {
	out    io.Writer
	colour bool
	width  func() int // of the terminal, asked for each line; nil: no limit

	depths map[string]int    // subagent -> how far it is indented
	calls  map[string]string // running tool call -> its title
}

// show prints one line of the tail stream.
func (v *tailView) show(l control.TailLine) error {
	switch {
	case l.Missed > 0:
		return v.line("", styleYellow, fmt.Sprintf("… %s left out: this terminal was too slow", plural(l.Missed, "event")))
	case l.Env == nil:
		return v.line("", styleDim, "… an event that this version of happyd does not know")
	}
	if l.Env.Ev.T == protocol.TypeService && strings.TrimSpace(l.Env.Ev.Text) == "" {
		return nil // a token count: no client shows it as a line
	}
	style, text := v.describe(l.Session, *l.Env)
	at := time.UnixMilli(l.Env.Time).Format("15:04:05")
	indent := strings.Repeat("  ", v.depth(l.Session, l.Env.Subagent))
	return v.line(at+" "+shortID(printable(l.Session))+" "+indent, style, text)
}

// note prints a remark that is no event.
func (v *tailView) note(text string) error { return v.line("", styleBold, text) }

func (v *tailView) line(head, style, text string) error {
	width := 0
	if v.width != nil {
		width = v.width()
	}
	if width > 0 {
		text = shorten(text, max(width-len(head), 20))
	}
	if v.colour {
		head = styleDim + head + styleReset
		text = style + text + styleReset
	}
	_, err := fmt.Fprintln(v.out, head+text)
	return err
}

// describe says in one line what happened.
func (v *tailView) describe(session string, e protocol.Envelope) (style, text string) {
	switch ev := e.Ev; ev.T {
	case protocol.TypeText:
		switch {
		case e.Role == protocol.RoleUser:
			return styleCyan, "> " + summary(ev.Text)
		case ev.Thinking:
			return styleDim, "~ " + summary(ev.Text)
		}
		return "", "● " + summary(ev.Text)
	case protocol.TypeService:
		return styleYellow, "! " + summary(ev.Text)
	case protocol.TypeToolStart:
		title := v.callStarts(session, e)
		return styleGreen, "▸ " + title
	case protocol.TypeToolEnd:
		return styleDim, "✓ " + v.callEnds(session, ev.Call)
	case protocol.TypeFile:
		return styleCyan, fmt.Sprintf("> [%s, %s]", printable(ev.Name), bytesText(ev.Size))
	case protocol.TypeTurnStart:
		return styleDim, "┬ turn begins"
	case protocol.TypeTurnEnd:
		style = styleDim
		if ev.Status != protocol.StatusCompleted {
			style = styleRed
		}
		return style, "┴ turn " + printable(string(ev.Status))
	case protocol.TypeStart:
		text = "┬ subagent begins"
		if ev.Title != "" {
			text += ": " + summary(ev.Title)
		}
		return styleDim, text
	case protocol.TypeStop:
		return styleDim, "┴ subagent ends"
	}
	return styleDim, printable(string(e.Ev.T))
}

// summary is the first line of a text, and how much there is beside it.
func summary(s string) string {
	line, more := firstLine(s)
	if more > 0 {
		line += fmt.Sprintf("  (+%s)", plural(more, "line"))
	}
	return line
}

// callStarts remembers a call's title for its end, and the depth of the
// subagent that the call spawns.
func (v *tailView) callStarts(session string, e protocol.Envelope) string {
	title := printable(e.Ev.Name)
	switch t := summary(e.Ev.Title); {
	case t == title || strings.HasPrefix(t, title+" "): // "Edit timer.go" says it all
		title = t
	case t != "":
		title += ": " + t
	}
	if v.calls == nil {
		v.calls = map[string]string{}
	}
	v.calls[session+"\x00"+e.Ev.Call] = title

	var args struct {
		Child string `json:"sessionSubagent"`
	}
	// Arguments of another shape are a tool's own affair.
	if json.Unmarshal(e.Ev.Args, &args) == nil && args.Child != "" {
		if v.depths == nil {
			v.depths = map[string]int{}
		}
		v.depths[session+"\x00"+args.Child] = v.depth(session, e.Subagent) + 1
	}
	return title
}

func (v *tailView) callEnds(session, call string) string {
	key := session + "\x00" + call
	title, ok := v.calls[key]
	delete(v.calls, key)
	if !ok {
		return "a tool call ends" // it began before what is shown
	}
	return title
}

// depth is how far a conversation is indented. One whose beginning was not
// shown is a child of the main thread as far as this view knows.
func (v *tailView) depth(session, subagent string) int {
	if subagent == "" {
		return 0
	}
	if d, ok := v.depths[session+"\x00"+subagent]; ok {
		return d
	}
	return 1
}

package claude

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/happyd/happyd/adapters"
)

// ansi matches terminal control sequences in the output of local commands.
var ansi = regexp.MustCompile("\x1b\\[[0-9;?]*[ -/]*[@-~]|\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)|\x1b[@-_]")

// hiddenTags wrap text that the harness put into a user's message; pasted text keeps its content and loses its tags.
var hiddenTags = []string{"system-reminder", "ide_opened_file", "ide_selection", "ide_diagnostics", "local-command-caveat"}

var pastedTag = regexp.MustCompile(`</?pasted_content[^>]*>`)

// cut removes all <tag>…</tag> blocks; an unclosed one removes the rest.
func cut(s, tag string) string {
	open, end := "<"+tag, "</"+tag+">"
	for {
		i := strings.Index(s, open)
		if i < 0 || (len(s) > i+len(open) && s[i+len(open)] != '>' && s[i+len(open)] != ' ') {
			return s
		}
		j := strings.Index(s[i:], end)
		if j < 0 {
			return s[:i]
		}
		s = s[:i] + s[i+j+len(end):]
	}
}

// between returns the text inside the first <tag>…</tag>.
func between(s, tag string) (string, bool) {
	_, rest, ok := strings.Cut(s, "<"+tag+">")
	if !ok {
		return "", false
	}
	in, _, ok := strings.Cut(rest, "</"+tag+">")
	return in, ok
}

// humanText is a prompt without what the harness added to it.
func humanText(s string) string {
	for _, t := range hiddenTags {
		s = cut(s, t)
	}
	return strings.TrimSpace(pastedTag.ReplaceAllString(s, ""))
}

func plain(s string) string { return strings.TrimSpace(ansi.ReplaceAllString(s, "")) }

// command renders a logged slash command as it was typed.
func command(s string) (string, bool) {
	name, ok := between(s, "command-name")
	if !ok {
		return "", false
	}
	name = strings.TrimSpace(name)
	if name != "" && !strings.HasPrefix(name, "/") {
		name = "/" + name
	}
	args, _ := between(s, "command-args")
	return strings.TrimSpace(name + " " + strings.TrimSpace(args)), name != ""
}

const (
	interrupted     = "[Request interrupted by user]"
	interruptedTool = "[Request interrupted by user for tool use]"
)

func isInterrupt(s string) bool {
	s = strings.TrimSpace(s)
	return s == interrupted || s == interruptedTool
}

// note is a parsed <task-notification>.
type note struct{ task, call, status, summary string }

const noteTag = "<task-notification>"

// isNote says whether a text is a task notification, and not one that a human quotes.
func isNote(text, origin string) bool {
	return origin == "task-notification" || origin != "human" && strings.HasPrefix(strings.TrimSpace(text), noteTag)
}

// parseNotes reads the task notifications of a text: several ends are reported together.
func parseNotes(text, origin string) []note {
	if !isNote(text, origin) {
		return nil
	}
	var out []note
	for {
		i := strings.Index(text, noteTag)
		if i < 0 {
			return out
		}
		body, rest, _ := strings.Cut(text[i+len(noteTag):], "</task-notification>")
		var n note
		n.task, _ = between(body, "task-id")
		n.call, _ = between(body, "tool-use-id")
		n.status, _ = between(body, "status")
		n.summary, _ = between(body, "summary")
		out = append(out, n)
		text = rest
	}
}

// matePrefix introduces a message of another agent of the team.
const matePrefix = "Another Claude session sent a message:"

// fromMate says whether a text is another agent's message.
func fromMate(text, origin string) bool {
	text = strings.TrimSpace(text)
	return origin != "human" && (strings.HasPrefix(text, matePrefix) || strings.HasPrefix(text, "<teammate-message"))
}

// idleNote reads a teammate's report that it has nothing more to do: its name, and when it said so.
func idleNote(text string) (mate, at string, ok bool) {
	if !strings.Contains(text, `"idle_notification"`) {
		return "", "", false
	}
	_, body, _ := strings.Cut(text, "<teammate-message")
	head, body, _ := strings.Cut(body, ">")
	_, mate, _ = strings.Cut(head, `teammate_id="`)
	mate, _, _ = strings.Cut(mate, `"`)
	body, _, _ = strings.Cut(body, "</teammate-message>")
	v := adapters.Fields([]byte(strings.TrimSpace(body)), "type", "from", "timestamp")
	if adapters.String(v[0]) != "idle_notification" {
		return "", "", false
	}
	if mate == "" {
		mate = adapters.String(v[1])
	}
	return mate, adapters.String(v[2]), mate != ""
}

// key names the notification: it comes up to three times, in the queue, as a record and as an attachment.
func (n note) key() string { return "note:" + n.task + ":" + n.call }

// promptHash is how prompts are compared without being kept.
func promptHash(s string) string {
	s = strings.TrimSpace(s)
	if s == "" {
		return ""
	}
	return strconv.FormatUint(adapters.Hash("prompt", s), 36)
}

// contentText joins the text of a string or of text blocks.
func contentText(raw []byte) string {
	if len(raw) > 0 && raw[0] == '"' {
		return adapters.String(raw)
	}
	var parts []string
	for _, b := range parseBlocks(raw) {
		if b.typ == "text" {
			parts = append(parts, b.text)
		}
	}
	return strings.Join(parts, "\n")
}

// versionBefore compares dotted versions; an unknown version is not before anything.
func versionBefore(v string, major, minor, patch int) bool {
	p := strings.SplitN(v, ".", 3)
	if len(p) != 3 {
		return false
	}
	want := [3]int{major, minor, patch}
	for i, x := range p {
		x, _, _ = strings.Cut(x, "-")
		n, err := strconv.Atoi(x)
		if err != nil {
			return false
		}
		if n != want[i] {
			return n < want[i]
		}
	}
	return false
}

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

func parseNote(s string) (note, bool) {
	if !strings.Contains(s, "<task-notification>") {
		return note{}, false
	}
	var n note
	n.task, _ = between(s, "task-id")
	n.call, _ = between(s, "tool-use-id")
	n.status, _ = between(s, "status")
	n.summary, _ = between(s, "summary")
	return n, true
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

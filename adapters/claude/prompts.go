package claude

import (
	"strings"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/protocol"
)

// answers shows what the user chose when the agent asked.
func (s *session) answers(l *line) {
	raw := adapters.Fields(l.result, "answers")[0]
	var lines []string
	adapters.ScanObject(raw, func(q, a []byte) bool {
		choice := adapters.String(a)
		adapters.Elements(a, func(_ int, v []byte) bool {
			choice = strings.TrimPrefix(choice+", "+adapters.String(v), ", ")
			return true
		})
		if choice != "" {
			lines = append(lines, "**"+adapters.String(append(append([]byte{'"'}, q...), '"'))+"** "+choice)
		}
		return true
	})
	s.c.Service(adapters.Main, 100, strings.Join(lines, "\n"))
}

// feedback shows what the user wrote when they refused a tool: the agent goes on with it.
func (s *session) feedback(l *line) {
	s.c.User(101, humanText(l.feedback), adapters.Extra{UUID: l.uuid})
}

// goesOn forgets an announced end that was not announced for long: the agent was given more to do.
func (s *session) goesOn() {
	if s.Pending != nil && s.Pending.Status == protocol.StatusCompleted {
		s.Pending.Held = true
	}
}

// mapQueue follows the queue of prompts typed while the agent works. Up to 2.1.96 a prompt that was taken up in the middle of
// a run leaves no other trace than its removal from here.
func (s *session) mapQueue(l *line) {
	text := contentText(l.content)
	if name, ok := strings.CutPrefix(text, `Background agent "`); ok && l.operation == "enqueue" {
		if name, ok = strings.CutSuffix(strings.TrimSpace(name), `" was stopped by the user.`); ok {
			s.kill(l, name)
			return
		}
	}
	switch l.operation {
	case "enqueue":
		s.enqueue(text)
	case "dequeue":
		s.takeQueued(text)
	case "popAll":
		s.Queue = nil
	case "remove":
		t := s.takeQueued(text)
		if !s.oldQueue() || isNote(t, "") || l.reason != "" && l.reason != "absorbed_mid_turn" {
			return
		}
		if t = humanText(t); t != "" {
			s.c.User(0, t, adapters.Extra{})
			s.Absorbed = promptHash(t)
			s.goesOn()
		}
	}
}

// oldQueue says whether prompts that were taken up in the middle of a run leave no other trace than the queue.
func (s *session) oldQueue() bool { return versionBefore(s.Version, 2, 1, 97) }

// Limits of what is remembered of the queue.
const (
	maxQueue      = 100
	maxQueueBytes = 1 << 20
)

// enqueue remembers a queued prompt where nothing else will tell its text.
func (s *session) enqueue(text string) {
	if !s.oldQueue() {
		return
	}
	size := len(text)
	for _, q := range s.Queue {
		size += len(q)
	}
	s.Queue = append(s.Queue, text)
	for len(s.Queue) > maxQueue || size > maxQueueBytes && len(s.Queue) > 1 {
		size -= len(s.Queue[0])
		s.Queue = append([]string(nil), s.Queue[1:]...)
	}
}

// takeQueued removes the named prompt, or the oldest, from the queue.
func (s *session) takeQueued(text string) string {
	for i, q := range s.Queue {
		if text == "" || q == text {
			s.Queue = append(s.Queue[:i:i], s.Queue[i+1:]...)
			return q
		}
	}
	return text
}

// localCommands are slash commands that the client carries out itself. Others are the user's own, or skills: they start a run.
var localCommands = map[string]bool{
	"add-dir": true, "agents": true, "bug": true, "clear": true, "color": true, "compact": true, "config": true, "context": true,
	"copy": true, "cost": true, "doctor": true, "effort": true, "exit": true, "export": true, "extra-usage": true, "fast": true,
	"feedback": true, "fork": true, "help": true, "hooks": true, "ide": true, "keybindings": true, "login": true, "logout": true,
	"mcp": true, "memory": true, "mobile": true, "model": true, "output-style": true, "permissions": true, "plugin": true,
	"privacy-settings": true, "quit": true, "release-notes": true, "remote-control": true, "rename": true, "resume": true,
	"rewind": true, "sandbox": true, "stats": true, "status": true, "statusline": true, "tasks": true, "terminal-setup": true,
	"theme": true, "todos": true, "upgrade": true, "usage": true, "vim": true,
}

func isLocal(command string) bool {
	name, _, _ := strings.Cut(strings.TrimPrefix(command, "/"), " ")
	return localCommands[name]
}

// title takes a record that names the session.
func (s *session) title(stream string, l *line) {
	if stream != adapters.Main {
		return
	}
	switch l.typ {
	case "custom-title":
		s.setTitle(0, l.title)
	case "ai-title":
		s.setTitle(1, l.title)
	case "summary":
		// A summary often names another session's leaf.
		if l.leaf != "" && s.c.Known(l.leaf) {
			s.setTitle(1, l.title)
		}
	}
}

// setTitle keeps the latest title of a kind: 0 custom, 1 AI, 2 first prompt (which stays).
func (s *session) setTitle(kind int, title string) {
	title = protocol.Truncate(protocol.CleanText(title), maxTitle)
	if title == "" || s.Titles[kind] == title || (kind == 2 && s.Titles[2] != "") {
		return
	}
	s.Titles[kind] = title
	s.c.S.Facts.TitleAt = max(s.c.Now(), s.c.S.Facts.TitleAt)
	s.c.Changed()
}

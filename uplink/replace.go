package uplink

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/happyd/happyd/protocol"
	"github.com/happyd/happyd/store"
)

const (
	// cutSuffix marks the Kind of an entry that was cut already.
	cutSuffix = "/cut"
	// parkedKind is the Kind of the line that stands in for a message.
	parkedKind = "parked"
	// cutMin is the sealed size below which cutting does not help.
	cutMin = 2 << 10
)

// replace puts something in the place of an entry that the server will never
// take: half of its text or arguments while it is big, a line that says so
// else. The place in the order, the turn and the subagent stay.
func (u *Uplink) replace(s *session, ses store.Session, e store.Entry, se *statusError) (bool, time.Duration) {
	if e.Kind == parkedKind {
		// Even that line: it is not the message. There is no point in going on,
		// and none in dropping more.
		if se.code < http.StatusInternalServerError {
			u.gate.wrong(se.Error() + " to even the shortest message")
		}
		return u.failed(s, se)
	}
	keys, err := u.o.Account.Session(ses.Info.Tag)
	if err != nil {
		u.log.Error("replacing a message", "session", s.key, "err", err)
		return u.failed(s, err)
	}
	var env protocol.Envelope
	plain, err := keys.Sealer.Open(e.Sealed)
	if err == nil {
		env, err = protocol.Unwrap(plain)
	}
	readable := err == nil
	m := store.Message{Turn: e.Turn}
	var out protocol.Envelope
	why, verb := "", "cut"
	if readable && len(e.Sealed) >= cutMin && cut(&env, len(plain), len(e.Sealed)) {
		out, m.Kind = env, strings.TrimSuffix(e.Kind, cutSuffix)+cutSuffix
		if !strings.HasSuffix(e.Kind, cutSuffix) {
			why = fmt.Sprintf("a %s of %s was cut: %v", e.Kind, size(len(e.Sealed)), se)
		}
	} else {
		verb, m.Kind = "parked", parkedKind
		why = fmt.Sprintf("a %s of %s was left out: %v", strings.TrimSuffix(e.Kind, cutSuffix), size(len(e.Sealed)), se)
		out = standIn(e, env, readable, u.o.Wall())
	}
	// The same function of the old id on every try: a replacement whose answer
	// got lost is dropped by the server as any other message is.
	m.LocalID = protocol.DeriveID("replaced", verb, e.LocalID)
	sealed, err := wrapAndSeal(keys.Sealer.Seal, out)
	if err != nil {
		u.log.Error("replacing a message", "session", s.key, "err", err)
		return u.failed(s, err)
	}
	m.Sealed = sealed
	if err := u.o.Scope.Replace(u.background(), s.key, ses.Info.Tag, e.Seq, m, why); err != nil {
		return u.storeOutcome(s.key, err, true)
	}
	if why != "" {
		u.log.Warn("a message cannot be delivered as it is", "session", s.key, "kind", e.Kind,
			"bytes", len(e.Sealed), "done", verb, "reason", se.Error())
	}
	return true, 0
}

func wrapAndSeal(seal func([]byte) ([]byte, error), e protocol.Envelope) ([]byte, error) {
	plain, err := protocol.Wrap(e)
	if err != nil {
		return nil, fmt.Errorf("wrapping: %w", err)
	}
	return seal(plain)
}

// cut makes the envelope about half as big, keeping what gives the stream its
// shape: its ids, and of a tool call all but the long arguments.
func cut(env *protocol.Envelope, plain, sealed int) bool {
	switch env.Ev.T {
	case protocol.TypeText, protocol.TypeService:
		marker := fmt.Sprintf("\n\n[… cut by happyd: %s is more than the server takes]", size(sealed))
		if i := strings.LastIndex(env.Ev.Text, "\n\n[… cut by happyd: "); i >= 0 {
			marker = env.Ev.Text[i:] // the size of the whole, from the first time
			env.Ev.Text = env.Ev.Text[:i]
		}
		if len(env.Ev.Text) < cutMin/2 {
			return false
		}
		env.Ev.Text = prefix(env.Ev.Text, len(env.Ev.Text)/2) + marker
		return true
	case protocol.TypeToolStart:
		return cutArgs(env, plain)
	}
	return false
}

// cutArgs shortens the long arguments, each to at most an equal share of half
// of what there was.
func cutArgs(env *protocol.Envelope, plain int) bool {
	var args map[string]json.RawMessage
	if json.Unmarshal(env.Ev.Args, &args) != nil || len(args) == 0 {
		return false
	}
	share := plain / 2 / len(args)
	did := false
	for k, raw := range args {
		if len(raw) <= max(share, 256) {
			continue
		}
		did = true
		var s string
		if json.Unmarshal(raw, &s) != nil {
			s = string(raw)
		}
		marker := fmt.Sprintf(" [… cut by happyd from %s]", size(len(raw)))
		if i := strings.LastIndex(s, " [… cut by happyd from "); i >= 0 {
			s, marker = s[:i], s[i:]
		}
		// Not of the share but of the text: escapes count several times.
		var short bytes.Buffer
		enc := json.NewEncoder(&short)
		enc.SetEscapeHTML(false)
		if enc.Encode(prefix(s, min(len(s)/2, share))+marker) != nil {
			return false
		}
		args[k] = bytes.TrimSpace(short.Bytes())
	}
	if !did {
		return false
	}
	raw, err := json.Marshal(args)
	if err != nil {
		return false
	}
	env.Ev.Args = raw
	env.Ev.Description = protocol.Truncate(env.Ev.Description, 200)
	return true
}

// standIn is the line that takes the place of a message. It needs a turn, which
// what the user typed has not: there it is the user's text that says so.
func standIn(e store.Entry, env protocol.Envelope, readable bool, now time.Time) protocol.Envelope {
	kind := strings.TrimSuffix(e.Kind, cutSuffix)
	if kind == "" {
		kind = "message"
	}
	text := fmt.Sprintf("happyd left out a %s of %s here: the server does not take it.", kind, size(len(e.Sealed)))
	out := protocol.Envelope{
		ID:   protocol.DeriveID("parked", e.LocalID),
		Time: now.UnixMilli(),
		Turn: e.Turn,
		Role: protocol.RoleAgent,
		Ev:   protocol.Event{T: protocol.TypeService, Text: text},
	}
	if readable {
		out.Time, out.Subagent = env.Time, env.Subagent
	}
	if out.Turn == "" {
		out.Role, out.Subagent = protocol.RoleUser, ""
		out.Ev = protocol.Event{T: protocol.TypeText, Text: "[" + text + "]"}
	}
	return out
}

// prefix is the longest start of s of at most n bytes that ends between runes.
func prefix(s string, n int) string {
	if n >= len(s) {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

func size(n int) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}

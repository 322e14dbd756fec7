package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// ErrInvalid is wrapped by every error of Validate, Decode and Wrap that says
// the envelope itself can never be sent: trying again is no use.
var ErrInvalid = errors.New("invalid envelope")

// maxSafeInt is the largest whole number that JavaScript reads exactly.
const maxSafeInt = 1<<53 - 1

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

// Validate reports the first rule that the envelope breaks. It is at least as
// strict as every known peer, which drops an offending message silently.
func (e Envelope) Validate() error {
	switch {
	case !IsID(e.ID):
		return invalid("id is not shaped like an id")
	case e.Time <= 0 || e.Time > maxSafeInt:
		return invalid("time is not in milliseconds after 1970")
	case e.Role != RoleUser && e.Role != RoleAgent:
		return invalid("role is neither user nor agent")
	case e.Turn != "" && !IsID(e.Turn):
		return invalid("turn is not shaped like an id")
	case e.Subagent != "" && !IsID(e.Subagent):
		return invalid("subagent is not shaped like an id")
	case !utf8.ValidString(e.ClaudeUUID):
		return invalid("claudeUuid is not UTF-8")
	case !utf8.ValidString(e.CodexItemID):
		return invalid("codexItemId is not UTF-8")
	}
	if err := e.Usage.validate(); err != nil {
		return err
	}
	if err := e.Ev.validate(); err != nil {
		return err
	}
	if e.Role == RoleUser && e.Ev.T != TypeText && e.Ev.T != TypeFile {
		return invalid("%s is for agents only", e.Ev.T)
	}
	if e.Role == RoleAgent && e.Turn == "" && !e.usageOnly() {
		return invalid("%s of an agent without a turn", e.Ev.T)
	}
	if (e.Ev.T == TypeStart || e.Ev.T == TypeStop) && e.Subagent == "" {
		return invalid("%s without a subagent", e.Ev.T)
	}
	return nil
}

// usageOnly is the one agent envelope that needs no turn: it shows nothing.
func (e Envelope) usageOnly() bool {
	return e.Ev.T == TypeService && e.Usage != nil && strings.TrimSpace(e.Ev.Text) == ""
}

func (u *Usage) validate() error {
	if u == nil {
		return nil
	}
	if !isCount(u.InputTokens) || !isCount(u.OutputTokens) {
		return invalid("usage tokens out of range")
	}
	for _, n := range []*int64{u.CacheCreationInputTokens, u.CacheReadInputTokens, u.ContextWindow} {
		if n != nil && !isCount(*n) {
			return invalid("usage tokens out of range")
		}
	}
	if u.ContextWindow != nil && *u.ContextWindow == 0 {
		return invalid("usage.context_window is zero")
	}
	if !utf8.ValidString(u.ServiceTier) {
		return invalid("usage.service_tier is not UTF-8")
	}
	return nil
}

func isCount(n int64) bool { return n >= 0 && n <= maxSafeInt }

func (ev Event) validate() error {
	switch ev.T {
	case TypeText, TypeService:
		return validText(ev.T, "text", ev.Text)
	case TypeToolStart:
		if ev.Call == "" || ev.Name == "" {
			return invalid("%s without call or name", ev.T)
		}
		if err := validText(ev.T, "call", ev.Call, "name", ev.Name, "title", ev.Title, "description", ev.Description); err != nil {
			return err
		}
		return validArgs(ev.Args)
	case TypeToolEnd:
		if ev.Call == "" {
			return invalid("%s without call", ev.T)
		}
		return validText(ev.T, "call", ev.Call)
	case TypeFile:
		if ev.Ref == "" {
			return invalid("%s without ref", ev.T)
		}
		if !isCount(ev.Size) {
			return invalid("%s size out of range", ev.T)
		}
		if im := ev.Image; im != nil {
			if im.Width <= 0 || im.Height <= 0 || int64(im.Width) > maxSafeInt || int64(im.Height) > maxSafeInt {
				return invalid("%s image without a size", ev.T)
			}
			if err := validText(ev.T, "image.thumbhash", im.Thumbhash); err != nil {
				return err
			}
		}
		return validText(ev.T, "ref", ev.Ref, "name", ev.Name, "mimeType", ev.MimeType)
	case TypeTurnEnd:
		switch ev.Status {
		case StatusCompleted, StatusFailed, StatusCancelled:
			return nil
		}
		return invalid("%s without a known status", ev.T)
	case TypeStart:
		return validText(ev.T, "title", ev.Title)
	case TypeTurnStart, TypeStop:
		return nil
	}
	return invalid("unknown event type")
}

// validText checks pairs of field name and value.
func validText(t Type, pairs ...string) error {
	for i := 0; i+1 < len(pairs); i += 2 {
		if !utf8.ValidString(pairs[i+1]) {
			return invalid("%s.%s is not UTF-8", t, pairs[i])
		}
	}
	return nil
}

func validArgs(raw json.RawMessage) error {
	switch {
	case firstByte(raw) != '{' || !json.Valid(raw):
		return invalid("%s.args is not a JSON object", TypeToolStart)
	case !utf8.Valid(raw):
		return invalid("%s.args is not UTF-8", TypeToolStart)
	}
	return nil
}

// firstByte is the first byte that is not JSON white space, 0 if none is.
func firstByte(raw []byte) byte {
	raw = bytes.TrimLeft(raw, " \t\r\n")
	if len(raw) == 0 {
		return 0
	}
	return raw[0]
}

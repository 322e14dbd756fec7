package protocol

import (
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// The encoder is written by hand: each event writes only its own keys, text
// keeps <, > and & readable on the phone's wire, and one message costs one
// allocation.

// MarshalJSON writes the envelope's wire form, without HTML escaping (the
// encoding/json package adds its own unless an Encoder is told otherwise). It
// does not validate: a half-built envelope can be kept as JSON, too. An event
// without a known type, or with args that are no object, is an error.
func (e Envelope) MarshalJSON() ([]byte, error) {
	if err := e.Ev.validArgs(); err != nil {
		return nil, err
	}
	return e.append(make([]byte, 0, 256+len(e.Ev.Text)+len(e.Ev.Args)))
}

// MarshalJSON writes the keys that belong to the event's type.
func (ev Event) MarshalJSON() ([]byte, error) {
	if err := ev.validArgs(); err != nil {
		return nil, err
	}
	return ev.append(make([]byte, 0, 64+len(ev.Text)+len(ev.Args)))
}

// validArgs refuses args that would break the whole message.
func (ev Event) validArgs() error {
	if ev.T != TypeToolStart {
		return nil
	}
	return validArgs(ev.Args)
}

// append needs args that are valid.
func (e Envelope) append(b []byte) ([]byte, error) {
	b = appendKey(b, `{"id":`, e.ID)
	b = append(b, `,"time":`...)
	b = strconv.AppendInt(b, e.Time, 10)
	b = appendKey(b, `,"role":`, string(e.Role))
	b = appendOptional(b, `,"turn":`, e.Turn)
	b = appendOptional(b, `,"subagent":`, e.Subagent)
	b = appendOptional(b, `,"claudeUuid":`, e.ClaudeUUID)
	b = appendOptional(b, `,"codexItemId":`, e.CodexItemID)
	if e.Usage != nil {
		b = append(b, `,"usage":`...)
		b = e.Usage.append(b)
	}
	b = append(b, `,"ev":`...)
	b, err := e.Ev.append(b)
	if err != nil {
		return nil, err
	}
	return append(b, '}'), nil
}

func (u *Usage) append(b []byte) []byte {
	b = append(b, `{"input_tokens":`...)
	b = strconv.AppendInt(b, u.InputTokens, 10)
	b = append(b, `,"output_tokens":`...)
	b = strconv.AppendInt(b, u.OutputTokens, 10)
	b = appendCount(b, `,"cache_creation_input_tokens":`, u.CacheCreationInputTokens)
	b = appendCount(b, `,"cache_read_input_tokens":`, u.CacheReadInputTokens)
	b = appendCount(b, `,"context_window":`, u.ContextWindow)
	b = appendOptional(b, `,"service_tier":`, u.ServiceTier)
	return append(b, '}')
}

func (ev Event) append(b []byte) ([]byte, error) {
	b = appendKey(b, `{"t":`, string(ev.T))
	switch ev.T {
	case TypeText:
		b = appendKey(b, `,"text":`, ev.Text)
		if ev.Thinking {
			b = append(b, `,"thinking":true`...)
		}
	case TypeService:
		b = appendKey(b, `,"text":`, ev.Text)
	case TypeToolStart:
		b = appendKey(b, `,"call":`, ev.Call)
		b = appendKey(b, `,"name":`, ev.Name)
		b = appendKey(b, `,"title":`, ev.Title)
		b = appendKey(b, `,"description":`, ev.Description)
		b = append(b, `,"args":`...)
		b = append(b, ev.Args...)
	case TypeToolEnd:
		b = appendKey(b, `,"call":`, ev.Call)
	case TypeFile:
		b = appendKey(b, `,"ref":`, ev.Ref)
		b = appendKey(b, `,"name":`, ev.Name)
		b = append(b, `,"size":`...)
		b = strconv.AppendInt(b, ev.Size, 10)
		b = appendOptional(b, `,"mimeType":`, ev.MimeType)
		if ev.Image != nil {
			b = append(b, `,"image":{"width":`...)
			b = strconv.AppendInt(b, int64(ev.Image.Width), 10)
			b = append(b, `,"height":`...)
			b = strconv.AppendInt(b, int64(ev.Image.Height), 10)
			b = appendKey(b, `,"thumbhash":`, ev.Image.Thumbhash)
			b = append(b, '}')
		}
	case TypeTurnEnd:
		b = appendKey(b, `,"status":`, string(ev.Status))
	case TypeStart:
		b = appendOptional(b, `,"title":`, ev.Title)
	case TypeTurnStart, TypeStop:
	default:
		return nil, invalid("unknown event type")
	}
	return append(b, '}'), nil
}

func appendKey(b []byte, key, value string) []byte {
	return appendString(append(b, key...), value)
}

func appendOptional(b []byte, key, value string) []byte {
	if value == "" {
		return b
	}
	return appendKey(b, key, value)
}

func appendCount(b []byte, key string, n *int64) []byte {
	if n == nil {
		return b
	}
	return strconv.AppendInt(append(b, key...), *n, 10)
}

const hexDigits = "0123456789abcdef"

// appendString writes s as a JSON string. Invalid UTF-8 becomes U+FFFD, as
// CleanText would make it.
func appendString(b []byte, s string) []byte {
	if !utf8.ValidString(s) {
		s = CleanText(s)
	}
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	b = append(b, s[from:]...)
	return append(b, '"')
}

var (
	_ json.Marshaler   = Envelope{}
	_ json.Marshaler   = Event{}
	_ json.Unmarshaler = (*Envelope)(nil)
	_ json.Unmarshaler = (*Event)(nil)
)

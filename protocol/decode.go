package protocol

import (
	"encoding/json"
	"math"
	"strconv"
	"unicode/utf8"
)

// Decode reads one envelope and validates it. Keys it does not know are
// ignored; a known key with a wrong type, or null, is an error as it is for the
// app.
func Decode(b []byte) (Envelope, error) {
	var e Envelope
	if err := e.UnmarshalJSON(b); err != nil {
		return Envelope{}, err
	}
	if err := e.Validate(); err != nil {
		return Envelope{}, err
	}
	return e, nil
}

// UnmarshalJSON reads what MarshalJSON wrote. It checks types, not rules: use
// Decode for what comes from elsewhere.
func (e *Envelope) UnmarshalJSON(b []byte) error {
	d, err := readObject("envelope", b)
	if err != nil {
		return err
	}
	out := Envelope{
		ID:          d.text("id"),
		Time:        d.integer("time"),
		Role:        Role(d.text("role")),
		Turn:        d.optional("turn"),
		Subagent:    d.optional("subagent"),
		ClaudeUUID:  d.optional("claudeUuid"),
		CodexItemID: d.optional("codexItemId"),
	}
	if raw, ok := d.keys["usage"]; ok && d.err == nil {
		out.Usage, d.err = readUsage(raw)
	}
	if d.err != nil {
		return d.err
	}
	raw, ok := d.keys["ev"]
	if !ok {
		return invalid("envelope.ev is missing")
	}
	if err := out.Ev.UnmarshalJSON(raw); err != nil {
		return err
	}
	*e = out
	return nil
}

// UnmarshalJSON reads an event of a known type, and only that type's keys.
func (ev *Event) UnmarshalJSON(b []byte) error {
	d, err := readObject("ev", b)
	if err != nil {
		return err
	}
	out := Event{T: Type(d.text("t"))}
	switch out.T {
	case TypeText:
		out.Text = d.text("text")
		out.Thinking = d.flag("thinking")
	case TypeService:
		out.Text = d.text("text")
	case TypeToolStart:
		out.Call, out.Name = d.text("call"), d.text("name")
		out.Title, out.Description = d.text("title"), d.text("description")
		out.Args = append(json.RawMessage(nil), d.keys["args"]...)
		if firstByte(out.Args) != '{' {
			d.fail("args", "is not an object")
		}
	case TypeToolEnd:
		out.Call = d.text("call")
	case TypeFile:
		out.Ref, out.Name, out.Size = d.text("ref"), d.text("name"), d.integer("size")
		if _, ok := d.keys["mimeType"]; ok {
			out.MimeType = d.text("mimeType")
		}
		if raw, ok := d.keys["image"]; ok && d.err == nil {
			out.Image, d.err = readImage(raw)
		}
	case TypeTurnEnd:
		out.Status = Status(d.text("status"))
	case TypeStart:
		if _, ok := d.keys["title"]; ok {
			out.Title = d.text("title")
		}
	case TypeTurnStart, TypeStop:
	default:
		d.fail("t", "is not a known event type")
	}
	if d.err != nil {
		return d.err
	}
	*ev = out
	return nil
}

func readUsage(raw []byte) (*Usage, error) {
	d, err := readObject("usage", raw)
	if err != nil {
		return nil, err
	}
	u := &Usage{
		InputTokens:              d.integer("input_tokens"),
		OutputTokens:             d.integer("output_tokens"),
		CacheCreationInputTokens: d.optionalInteger("cache_creation_input_tokens"),
		CacheReadInputTokens:     d.optionalInteger("cache_read_input_tokens"),
		ContextWindow:            d.optionalInteger("context_window"),
	}
	if _, ok := d.keys["service_tier"]; ok {
		u.ServiceTier = d.text("service_tier")
	}
	return u, d.err
}

func readImage(raw []byte) (*Image, error) {
	d, err := readObject("image", raw)
	if err != nil {
		return nil, err
	}
	width, height := d.integer("width"), d.integer("height")
	if width > math.MaxInt32 || height > math.MaxInt32 || width < 0 || height < 0 {
		d.fail("width", "or height is out of range")
	}
	im := &Image{Width: int(width), Height: int(height), Thumbhash: d.text("thumbhash")}
	return im, d.err
}

// object reads the keys of one JSON object and keeps the first error. It works
// on a map because encoding/json would match struct keys in any case and let
// null through; peers do neither.
type object struct {
	what string
	keys map[string]json.RawMessage
	err  error
}

func readObject(what string, b []byte) (*object, error) {
	if !utf8.Valid(b) {
		return nil, invalid("%s is not UTF-8", what)
	}
	d := &object{what: what}
	if firstByte(b) != '{' || json.Unmarshal(b, &d.keys) != nil {
		return nil, invalid("%s is not a JSON object", what)
	}
	return d, nil
}

func (d *object) fail(key, problem string) {
	if d.err == nil {
		d.err = invalid("%s.%s %s", d.what, key, problem)
	}
}

// text reads a string that must be there.
func (d *object) text(key string) string {
	raw, ok := d.keys[key]
	if !ok {
		d.fail(key, "is missing")
		return ""
	}
	var s string
	if firstByte(raw) != '"' || json.Unmarshal(raw, &s) != nil {
		d.fail(key, "is not a string")
	}
	return s
}

// optional reads a string that may be missing but not empty.
func (d *object) optional(key string) string {
	if _, ok := d.keys[key]; !ok {
		return ""
	}
	s := d.text(key)
	if s == "" {
		d.fail(key, "is empty")
	}
	return s
}

func (d *object) flag(key string) bool {
	switch raw, ok := d.keys[key]; {
	case !ok || string(raw) == "false":
		return false
	case string(raw) == "true":
		return true
	}
	d.fail(key, "is not a boolean")
	return false
}

func (d *object) integer(key string) int64 {
	n := d.optionalInteger(key)
	if n == nil {
		d.fail(key, "is missing")
		return 0
	}
	return *n
}

// optionalInteger takes any spelling of a whole number that JavaScript can hold
// exactly: 12, 12.0, 1.2e1.
func (d *object) optionalInteger(key string) *int64 {
	raw, ok := d.keys[key]
	if !ok {
		return nil
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil {
		f, err := strconv.ParseFloat(string(raw), 64)
		if err != nil || f != math.Trunc(f) || math.Abs(f) > maxSafeInt {
			d.fail(key, "is not a whole number")
			return new(int64)
		}
		n = int64(f)
	}
	return &n
}

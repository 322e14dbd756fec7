package cases

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Pattern is a pattern for one envelope.
type Pattern map[string]any

// Bindings are the values of "$X" in the patterns so far.
type Bindings map[string]string

// envelope is an envelope as JSON, however it came.
type envelope struct {
	all map[string]any
	ev  map[string]any
	raw string
}

func decode(raw json.RawMessage) (envelope, error) {
	var e envelope
	if err := json.Unmarshal(raw, &e.all); err != nil {
		return e, err
	}
	e.ev, _ = e.all["ev"].(map[string]any)
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e.all); err != nil {
		return e, err
	}
	e.raw = b.String()
	return e, nil
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// oneOf reads a string or a list of strings.
func oneOf(v any) []string {
	if list, ok := v.([]any); ok {
		var out []string
		for _, x := range list {
			out = append(out, text(x))
		}
		return out
	}
	return []string{text(v)}
}

// match matches an envelope and returns the bindings, extended.
func (p Pattern) match(e envelope, b Bindings) (Bindings, bool) {
	out := maps.Clone(b)
	if out == nil {
		out = Bindings{}
	}
	for k, want := range p {
		ok := false
		switch k {
		case "role":
			ok = text(e.all["role"]) == want
		case "t":
			ok = text(e.ev["t"]) == want
		case "text":
			got, is := e.ev["text"].(string)
			ok = is && got == want
		case "text~":
			ok = strings.Contains(text(e.ev["text"]), text(want))
		case "title~":
			ok = strings.Contains(text(e.ev["title"]), text(want))
		case "any~":
			ok = strings.Contains(e.raw, text(want))
		case "thinking":
			got, _ := e.ev["thinking"].(bool)
			ok = got == want
		case "status":
			ok = slices.Contains(oneOf(want), text(e.ev["status"]))
		case "name":
			got := strings.ReplaceAll(strings.ToLower(text(e.ev["name"])), "_", "-")
			ok = slices.ContainsFunc(oneOf(want), func(s string) bool { return strings.ToLower(s) == got })
		case "turn", "subagent":
			ok = out.bind(want, e.all[k])
		case "call":
			ok = out.bind(want, e.ev[k])
		default:
			panic(fmt.Sprintf("unknown pattern key %q", k))
		}
		if !ok {
			return nil, false
		}
	}
	return out, true
}

func (b Bindings) bind(want, got any) bool {
	value, present := got.(string)
	name, isText := want.(string)
	switch {
	case want == nil:
		return got == nil
	case !isText:
		return false
	case name == "*":
		return got != nil
	case !strings.HasPrefix(name, "$"):
		return present && value == name
	case !present:
		return false
	}
	if bound, ok := b[name]; ok {
		return bound == value
	}
	for other, v := range b {
		if v == value && len(other) > 1 && len(name) > 1 && other[:2] == name[:2] {
			return false
		}
	}
	b[name] = value
	return true
}

func (p Pattern) String() string {
	b, _ := json.Marshal(map[string]any(p))
	return string(b)
}

package protocol

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// envelopeWith puts extra JSON members after a valid envelope's: the last of two
// equal keys counts, as in JavaScript.
func envelopeWith(members string) string {
	return `{"id":"a1","time":5,"role":"agent","turn":"t2","ev":{"t":"text","text":"x"},` + members + `}`
}

func eventOf(ev string) string {
	return `{"id":"a1","time":5,"role":"agent","turn":"t2","subagent":"s3","ev":` + ev + `}`
}

// refused is JSON that neither we nor the official schema take for an envelope,
// unless ours says that we alone refuse it.
var refused = []struct {
	name, in string
	ours     bool
}{
	{"nothing", ``, false},
	{"null", `null`, false},
	{"array", `[]`, false},
	{"string", `"x"`, false},
	{"empty object", `{}`, false},
	{"cut off", `{"id":"a1"`, false},
	{"something behind", envelopeWith(`"x":1`) + `x`, false},
	{"id missing", `{"time":5,"role":"user","ev":{"t":"text","text":"x"}}`, false},
	{"id in capitals", `{"ID":"a1","time":5,"role":"user","ev":{"t":"text","text":"x"}}`, false},
	{"id number", envelopeWith(`"id":1`), false},
	{"id null", envelopeWith(`"id":null`), false},
	{"time missing", `{"id":"a1","role":"user","ev":{"t":"text","text":"x"}}`, false},
	{"time string", envelopeWith(`"time":"5"`), false},
	{"time null", envelopeWith(`"time":null`), false},
	{"time with a fraction", envelopeWith(`"time":5.5`), true},
	{"time huge", envelopeWith(`"time":1e300`), true},
	{"role number", envelopeWith(`"role":1`), false},
	{"turn null", envelopeWith(`"turn":null`), false},
	{"turn number", envelopeWith(`"turn":1`), false},
	{"turn empty", envelopeWith(`"turn":""`), true},
	{"subagent null", envelopeWith(`"subagent":null`), false},
	{"subagent empty", envelopeWith(`"subagent":""`), false},
	{"subagent with a dash", envelopeWith(`"subagent":"a-b"`), false},
	{"claudeUuid empty", envelopeWith(`"claudeUuid":""`), false},
	{"codexItemId null", envelopeWith(`"codexItemId":null`), false},
	{"usage null", envelopeWith(`"usage":null`), false},
	{"usage array", envelopeWith(`"usage":[]`), false},
	{"usage without output", envelopeWith(`"usage":{"input_tokens":1}`), false},
	{"usage with a string", envelopeWith(`"usage":{"input_tokens":1,"output_tokens":"2"}`), false},
	{"usage with a null count", envelopeWith(`"usage":{"input_tokens":1,"output_tokens":2,"context_window":null}`), false},
	{"usage with a null tier", envelopeWith(`"usage":{"input_tokens":1,"output_tokens":2,"service_tier":null}`), false},
	{"usage with half a token", envelopeWith(`"usage":{"input_tokens":1.5,"output_tokens":2}`), false},
	{"usage with an empty window", envelopeWith(`"usage":{"input_tokens":1,"output_tokens":2,"context_window":0}`), false},
	{"ev missing", `{"id":"a1","time":5,"role":"user"}`, false},
	{"ev null", eventOf(`null`), false},
	{"ev string", eventOf(`"text"`), false},
	{"ev without t", eventOf(`{"text":"x"}`), false},
	{"ev with T", eventOf(`{"T":"text","text":"x"}`), false},
	{"unknown event", eventOf(`{"t":"teleport"}`), false},
	{"text missing", eventOf(`{"t":"text"}`), false},
	{"text null", eventOf(`{"t":"text","text":null}`), false},
	{"text number", eventOf(`{"t":"text","text":1}`), false},
	{"thinking null", eventOf(`{"t":"text","text":"x","thinking":null}`), false},
	{"thinking string", eventOf(`{"t":"text","text":"x","thinking":"true"}`), false},
	{"service without text", eventOf(`{"t":"service"}`), false},
	{"tool without title", eventOf(`{"t":"tool-call-start","call":"c","name":"n","description":"d","args":{}}`), false},
	{"tool without description", eventOf(`{"t":"tool-call-start","call":"c","name":"n","title":"t","args":{}}`), false},
	{"tool without args", eventOf(`{"t":"tool-call-start","call":"c","name":"n","title":"t","description":"d"}`), false},
	{"tool with null args", eventOf(`{"t":"tool-call-start","call":"c","name":"n","title":"t","description":"d","args":null}`), false},
	{"tool with a list as args", eventOf(`{"t":"tool-call-start","call":"c","name":"n","title":"t","description":"d","args":[1]}`), false},
	{"tool end without call", eventOf(`{"t":"tool-call-end"}`), false},
	{"file without size", eventOf(`{"t":"file","ref":"r","name":"n"}`), false},
	{"file with size string", eventOf(`{"t":"file","ref":"r","name":"n","size":"1"}`), false},
	{"image null", eventOf(`{"t":"file","ref":"r","name":"n","size":1,"image":null}`), false},
	{"image without thumbhash", eventOf(`{"t":"file","ref":"r","name":"n","size":1,"image":{"width":1,"height":1}}`), false},
	{"image too wide", eventOf(`{"t":"file","ref":"r","name":"n","size":1,"image":{"width":1e12,"height":1,"thumbhash":""}}`), true},
	{"mimeType null", eventOf(`{"t":"file","ref":"r","name":"n","size":1,"mimeType":null}`), false},
	{"turn end without status", eventOf(`{"t":"turn-end"}`), false},
	{"turn end with status null", eventOf(`{"t":"turn-end","status":null}`), false},
	{"start with title null", eventOf(`{"t":"start","title":null}`), false},
	{"start by user", `{"id":"a1","time":5,"role":"user","subagent":"s3","ev":{"t":"start"}}`, false},
	{"service by user", `{"id":"a1","time":5,"role":"user","ev":{"t":"service","text":"x"}}`, false},
}

func TestDecodeRefuses(t *testing.T) {
	for _, tc := range refused {
		t.Run(tc.name, func(t *testing.T) {
			if e, err := Decode([]byte(tc.in)); !errors.Is(err, ErrInvalid) || !reflect.DeepEqual(e, Envelope{}) {
				t.Errorf("decoded %+v, %v", e, err)
			}
		})
	}
	for _, in := range []string{
		eventOf("{\"t\":\"text\",\"text\":\"\xff\"}"),
		eventOf(`{"t":"tool-call-start","call":"c","name":"n","title":"t","description":"d","args":` + strings.Repeat(`{"a":`, 20000) + `1` + strings.Repeat(`}`, 20001)),
	} {
		if _, err := Decode([]byte(in)); !errors.Is(err, ErrInvalid) {
			t.Errorf("decoded, %v", err)
		}
	}
}

func TestDecodeAccepts(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		want     Envelope
	}{
		{"unknown keys", `{"v":2,"id":"a1","time":5,"role":"user","extra":{"a":[null]},"ev":{"t":"text","text":"x","color":"red","isError":true}}`,
			Envelope{ID: "a1", Time: 5, Role: RoleUser, Ev: Event{T: TypeText, Text: "x"}}},
		{"last of two keys", `{"id":"zz","id":"a1","time":5,"role":"user","ev":{"t":"stop"},"ev":{"t":"text","text":"y","text":"x"}}`,
			Envelope{ID: "a1", Time: 5, Role: RoleUser, Ev: Event{T: TypeText, Text: "x"}}},
		{"keys of other events", `{"id":"a1","time":5,"role":"user","ev":{"t":"text","text":"x","call":1,"args":null}}`,
			Envelope{ID: "a1", Time: 5, Role: RoleUser, Ev: Event{T: TypeText, Text: "x"}}},
		{"numbers spelled oddly", `{"id":"a1","time":1.7e12,"role":"user","ev":{"t":"file","ref":"r","name":"","size":-0}}`,
			Envelope{ID: "a1", Time: 1700000000000, Role: RoleUser, Ev: Event{T: TypeFile, Ref: "r"}}},
		{"lone surrogate", `{"id":"a1","time":5,"role":"user","ev":{"t":"text","text":"a\ud83d"}}`,
			Envelope{ID: "a1", Time: 5, Role: RoleUser, Ev: Event{T: TypeText, Text: "a\uFFFD"}}},
		{"white space", " {\"id\" : \"a1\",\n\"time\":5, \"role\":\"user\",\t\"ev\": {\"t\":\"text\", \"text\": \"x\", \"thinking\": false } }\r\n",
			Envelope{ID: "a1", Time: 5, Role: RoleUser, Ev: Event{T: TypeText, Text: "x"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if e, err := Decode([]byte(tc.in)); err != nil || !reflect.DeepEqual(e, tc.want) {
				t.Errorf("decoded %+v, %v", e, err)
			}
		})
	}
}

// A half-built envelope survives the way through a state file.
func TestUnmarshalDoesNotValidate(t *testing.T) {
	half := Envelope{Role: RoleAgent, Ev: Event{T: TypeStart, Title: "x"}}
	b, err := json.Marshal(half)
	if err != nil {
		t.Fatal(err)
	}
	var back Envelope
	if err := json.Unmarshal(b, &back); err != nil || !reflect.DeepEqual(back, half) {
		t.Errorf("came back as %+v, %v", back, err)
	}
}

func TestUnwrapForms(t *testing.T) {
	const inner = `{"id":"a1","time":5,"role":"user","ev":{"t":"text","text":"x"}}`
	want := Envelope{ID: "a1", Time: 5, Role: RoleUser, Ev: Event{T: TypeText, Text: "x"}}
	for _, tc := range []struct {
		name, in string
		err      error
	}{
		{"session", `{"role":"session","content":` + inner + `,"meta":{"sentFrom":"cli"}}`, nil},
		{"session without meta", `{"content":` + inner + `,"role":"session"}`, nil},
		{"older form", `{"role":"agent","content":{"type":"session","data":` + inner + `},"meta":{"sentFrom":"cli"}}`, nil},
		{"older form below session", `{"role":"session","content":{"type":"session","data":` + inner + `}}`, nil},
		{"typed on the phone", `{"role":"user","content":{"type":"text","text":"hello"},"meta":{}}`, ErrNotSession},
		{"legacy agent message", `{"role":"agent","content":{"type":"output","data":{}}}`, ErrNotSession},
		{"envelope below agent", `{"role":"agent","content":` + inner + `}`, ErrNotSession},
		{"no role", `{"content":` + inner + `}`, ErrNotSession},
		{"role null", `{"role":null,"content":` + inner + `}`, ErrNotSession},
		{"no content", `{"role":"session"}`, ErrNotSession},
		{"content null", `{"role":"session","content":null}`, ErrNotSession},
		{"bare envelope", inner, ErrNotSession},
		{"bad envelope", `{"role":"session","content":{"id":"a1"}}`, ErrInvalid},
		{"older form without data", `{"role":"agent","content":{"type":"session"}}`, ErrInvalid},
		{"not JSON", `role`, ErrInvalid},
		{"nothing", ``, ErrInvalid},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e, err := Unwrap([]byte(tc.in))
			if !errors.Is(err, tc.err) {
				t.Fatalf("error %v, want %v", err, tc.err)
			}
			if err == nil && !reflect.DeepEqual(e, want) {
				t.Errorf("unwrapped %+v", e)
			}
		})
	}
}

// What decodes can be sent again, and means the same.
func FuzzDecode(f *testing.F) {
	for _, s := range samples {
		f.Add([]byte(s.json))
		f.Add([]byte(fmt.Sprintf(`{"role":"session","content":%s}`, s.json)))
		f.Add([]byte(fmt.Sprintf(`{"role":"agent","content":{"type":"session","data":%s}}`, s.json)))
	}
	for _, r := range refused {
		f.Add([]byte(r.in))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for name, decode := range map[string]func([]byte) (Envelope, error){"Decode": Decode, "Unwrap": Unwrap} {
			e, err := decode(b)
			if err != nil {
				continue
			}
			again, err := Wrap(e)
			if err != nil {
				t.Fatalf("%s takes what Wrap refuses: %v", name, err)
			}
			back, err := Unwrap(again)
			if err != nil || !reflect.DeepEqual(back, e) {
				t.Fatalf("%s: came back (%v) as\n%+v\nwas\n%+v", name, err, back, e)
			}
		}
	})
}

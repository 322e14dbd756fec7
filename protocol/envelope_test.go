package protocol

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	_ "github.com/happyd/happyd/internal/rapidseed"
)

func TestEveryEventHasItsWireForm(t *testing.T) {
	for _, tc := range samples {
		t.Run(tc.name, func(t *testing.T) {
			if err := tc.e.Validate(); err != nil {
				t.Fatal(err)
			}
			got, err := tc.e.MarshalJSON()
			if err != nil || string(got) != tc.json {
				t.Errorf("marshalled (%v)\n got %s\nwant %s", err, got, tc.json)
			}
			back, err := Decode([]byte(tc.json))
			if err != nil || !reflect.DeepEqual(back, tc.e) {
				t.Errorf("decoded (%v)\n got %+v\nwant %+v", err, back, tc.e)
			}
			wrapped, err := Wrap(tc.e)
			want := `{"role":"session","content":` + tc.json + `,"meta":{"sentFrom":"happyd"}}`
			if err != nil || string(wrapped) != want {
				t.Errorf("wrapped (%v)\n got %s\nwant %s", err, wrapped, want)
			}
			if back, err = Unwrap(wrapped); err != nil || !reflect.DeepEqual(back, tc.e) {
				t.Errorf("unwrapped (%v) %+v", err, back)
			}
		})
	}
}

func TestForeignFieldsAreNotWritten(t *testing.T) {
	all := Event{
		Text: "T1", Thinking: true, Call: "C1", Name: "N1", Title: "T2", Description: "D1", Args: json.RawMessage(`{"a":1}`),
		Ref: "R1", Size: 7, MimeType: "M1", Image: &Image{Width: 1, Height: 1, Thumbhash: "H1"}, Status: StatusFailed,
	}
	for typ, want := range map[Type]string{
		TypeText:      `{"t":"text","text":"T1","thinking":true}`,
		TypeService:   `{"t":"service","text":"T1"}`,
		TypeToolStart: `{"t":"tool-call-start","call":"C1","name":"N1","title":"T2","description":"D1","args":{"a":1}}`,
		TypeToolEnd:   `{"t":"tool-call-end","call":"C1"}`,
		TypeFile:      `{"t":"file","ref":"R1","name":"N1","size":7,"mimeType":"M1","image":{"width":1,"height":1,"thumbhash":"H1"}}`,
		TypeTurnStart: `{"t":"turn-start"}`,
		TypeTurnEnd:   `{"t":"turn-end","status":"failed"}`,
		TypeStart:     `{"t":"start","title":"T2"}`,
		TypeStop:      `{"t":"stop"}`,
	} {
		all.T = typ
		if got, err := json.Marshal(all); err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v", typ, got, err)
		}
	}
	all.T = "teleport"
	if _, err := json.Marshal(all); !errors.Is(err, ErrInvalid) {
		t.Errorf("an unknown type is written: %v", err)
	}
	all.T = TypeToolStart
	for _, args := range []string{"", "null", "[]", `{"a":`, "{}{}", "{\"\xff\":1}"} {
		all.Args = json.RawMessage(args)
		if _, err := json.Marshal(all); !errors.Is(err, ErrInvalid) {
			t.Errorf("args %q are written: %v", args, err)
		}
		if _, err := json.Marshal(agent(all)); !errors.Is(err, ErrInvalid) {
			t.Errorf("args %q are written in an envelope: %v", args, err)
		}
	}
}

// invalidEnvelopes break one rule each.
var invalidEnvelopes = []struct {
	name string
	e    Envelope
}{
	{"nothing", Envelope{}},
	{"no id", func() Envelope { e := agent(Event{T: TypeStop}); e.ID = ""; return e }()},
	{"uuid as id", func() Envelope {
		e := user(Event{T: TypeText})
		e.ID = "7d0b1f0e-4a39-4f6e-9c58-0f2f6c1d9a11"
		return e
	}()},
	{"no time", func() Envelope { e := user(Event{T: TypeText}); e.Time = 0; return e }()},
	{"time before 1970", func() Envelope { e := user(Event{T: TypeText}); e.Time = -1; return e }()},
	{"time beyond JavaScript", func() Envelope { e := user(Event{T: TypeText}); e.Time = maxSafeInt + 1; return e }()},
	{"unknown role", func() Envelope { e := user(Event{T: TypeText}); e.Role = "system"; return e }()},
	{"agent without turn", func() Envelope { e := agent(Event{T: TypeText, Text: "x"}); e.Turn = ""; return e }()},
	{"turn is a provider id", func() Envelope { e := agent(Event{T: TypeText}); e.Turn = "msg_01"; return e }()},
	{"subagent is a provider id", func() Envelope { e := agent(Event{T: TypeText}); e.Subagent = "toolu_01ABC"; return e }()},
	{"service with text but no turn", Envelope{ID: testID, Time: testTime, Role: RoleAgent, Usage: &Usage{}, Ev: Event{T: TypeService, Text: "x"}}},
	{"blank service without usage or turn", Envelope{ID: testID, Time: testTime, Role: RoleAgent, Ev: Event{T: TypeService}}},
	{"blank text with usage but no turn", Envelope{ID: testID, Time: testTime, Role: RoleAgent, Usage: &Usage{}, Ev: Event{T: TypeText}}},
	{"service by user", user(Event{T: TypeService, Text: "x"})},
	{"tool start by user", user(Event{T: TypeToolStart, Call: "c", Name: "n", Args: json.RawMessage(`{}`)})},
	{"tool end by user", user(Event{T: TypeToolEnd, Call: "c"})},
	{"turn start by user", user(Event{T: TypeTurnStart})},
	{"turn end by user", user(Event{T: TypeTurnEnd, Status: StatusFailed})},
	{"start by user", func() Envelope { e := user(Event{T: TypeStart}); e.Subagent = testSub; return e }()},
	{"stop by user", func() Envelope { e := user(Event{T: TypeStop}); e.Subagent = testSub; return e }()},
	{"start without subagent", agent(Event{T: TypeStart})},
	{"stop without subagent", agent(Event{T: TypeStop})},
	{"unknown event", agent(Event{T: "teleport"})},
	{"no event", agent(Event{})},
	{"tool start without call", agent(Event{T: TypeToolStart, Name: "n", Args: json.RawMessage(`{}`)})},
	{"tool start without name", agent(Event{T: TypeToolStart, Call: "c", Args: json.RawMessage(`{}`)})},
	{"tool start without args", agent(Event{T: TypeToolStart, Call: "c", Name: "n"})},
	{"args null", agent(Event{T: TypeToolStart, Call: "c", Name: "n", Args: json.RawMessage(`null`)})},
	{"args array", agent(Event{T: TypeToolStart, Call: "c", Name: "n", Args: json.RawMessage(` ["a"]`)})},
	{"args string", agent(Event{T: TypeToolStart, Call: "c", Name: "n", Args: json.RawMessage(`"{}"`)})},
	{"args cut off", agent(Event{T: TypeToolStart, Call: "c", Name: "n", Args: json.RawMessage(`{"a":`)})},
	{"args with more behind", agent(Event{T: TypeToolStart, Call: "c", Name: "n", Args: json.RawMessage(`{},"x":1`)})},
	{"args not UTF-8", agent(Event{T: TypeToolStart, Call: "c", Name: "n", Args: json.RawMessage("{\"a\":\"\xff\"}")})},
	{"tool end without call", agent(Event{T: TypeToolEnd})},
	{"file without ref", user(Event{T: TypeFile, Name: "a"})},
	{"file of negative size", user(Event{T: TypeFile, Ref: "r", Size: -1})},
	{"image without size", user(Event{T: TypeFile, Ref: "r", Image: &Image{Thumbhash: "x"}})},
	{"turn end without status", agent(Event{T: TypeTurnEnd})},
	{"turn end with unknown status", agent(Event{T: TypeTurnEnd, Status: "done"})},
	{"negative usage", func() Envelope { e := agent(Event{T: TypeText}); e.Usage = &Usage{InputTokens: -1}; return e }()},
	{"negative window", func() Envelope { e := agent(Event{T: TypeText}); e.Usage = &Usage{ContextWindow: ptr(-1)}; return e }()},
	{"empty window", func() Envelope { e := agent(Event{T: TypeText}); e.Usage = &Usage{ContextWindow: ptr(0)}; return e }()},
	{"tier not UTF-8", func() Envelope { e := agent(Event{T: TypeText}); e.Usage = &Usage{ServiceTier: "\xff"}; return e }()},
	{"text not UTF-8", agent(Event{T: TypeText, Text: "a\xff"})},
	{"title not UTF-8", child(Event{T: TypeStart, Title: "a\xff"})},
	{"call not UTF-8", agent(Event{T: TypeToolEnd, Call: "a\xff"})},
	{"thumbhash not UTF-8", user(Event{T: TypeFile, Ref: "r", Image: &Image{Width: 1, Height: 1, Thumbhash: "\xff"}})},
	{"claudeUuid not UTF-8", func() Envelope { e := agent(Event{T: TypeText}); e.ClaudeUUID = "\xff"; return e }()},
	{"codexItemId not UTF-8", func() Envelope { e := agent(Event{T: TypeText}); e.CodexItemID = "\xff"; return e }()},
}

func TestValidateRefuses(t *testing.T) {
	for _, tc := range invalidEnvelopes {
		t.Run(tc.name, func(t *testing.T) {
			if err := tc.e.Validate(); !errors.Is(err, ErrInvalid) {
				t.Errorf("Validate: %v", err)
			}
			if b, err := Wrap(tc.e); !errors.Is(err, ErrInvalid) || b != nil {
				t.Errorf("Wrap: %s, %v", b, err)
			}
		})
	}
}

func TestErrorsTellNothing(t *testing.T) {
	const secret = "sesame"
	for _, e := range []Envelope{
		{ID: secret + "!"}, {ID: testID, Time: 1, Role: secret}, agent(Event{T: secret}), agent(Event{T: TypeText, Text: secret + "\xff"}),
		agent(Event{T: TypeTurnEnd, Status: secret}), agent(Event{T: TypeToolStart, Call: "c", Name: "n", Args: json.RawMessage(secret)}),
	} {
		if err := e.Validate(); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("error %v", err)
		}
	}
	for _, in := range []string{secret, `{"id":` + secret + `}`, `{"id":"` + secret + `"}`, `{"role":"session","content":"` + secret + `"}`} {
		if _, err := Decode([]byte(in)); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("error %v", err)
		}
		if _, err := Unwrap([]byte(in)); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("error %v", err)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := genEnvelope.Draw(t, "envelope")
		if err := e.Validate(); err != nil {
			t.Fatal(err)
		}
		b, err := Wrap(e)
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid(b) || !utf8.Valid(b) {
			t.Fatalf("not JSON in UTF-8: %q", b)
		}
		back, err := Unwrap(b)
		if err != nil || !reflect.DeepEqual(back, e) {
			t.Fatalf("came back (%v) as\n%+v\nwas\n%+v", err, back, e)
		}
		// The way through encoding/json, as a state file or the log takes it.
		std, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		var plain Envelope
		if err := json.Unmarshal(std, &plain); err != nil {
			t.Fatal(err)
		}
		again, err := Wrap(plain)
		if err != nil {
			t.Fatal(err)
		}
		if e.Ev.T != TypeToolStart && string(again) != string(b) {
			t.Fatalf("encoding/json changed it:\n%s\n%s", b, again)
		}
	})
}

func BenchmarkWrap(b *testing.B) {
	e := agent(Event{T: TypeToolStart, Call: "toolu_01", Name: "Bash", Title: "List files", Description: "ls -la",
		Args: json.RawMessage(`{"command":"ls -la","description":"List files","timeout":1000}`)})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Wrap(e); err != nil {
			b.Fatal(err)
		}
	}
}

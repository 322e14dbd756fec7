package protocol

import (
	"encoding/json"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testID   = "tz4a98xxat96iws9zmbrgj3a"
	testTurn = "k2v9x0c4b7n1m5q8w3e6r0t2"
	testSub  = "ca7763be45664ba61b8a6ac8"
	testTime = 1764560000000
)

func ptr(n int64) *int64 { return &n }

// agent and user build minimal valid envelopes around an event.
func agent(ev Event) Envelope {
	return Envelope{ID: testID, Time: testTime, Role: RoleAgent, Turn: testTurn, Ev: ev}
}

func user(ev Event) Envelope {
	return Envelope{ID: testID, Time: testTime, Role: RoleUser, Ev: ev}
}

func child(ev Event) Envelope {
	e := agent(ev)
	e.Subagent = testSub
	return e
}

// samples holds one envelope of every kind with its wire form.
var samples = []struct {
	name string
	e    Envelope
	json string
}{
	{"user text", user(Event{T: TypeText, Text: "a <b>&\u2028\"\\\n\x01 é"}),
		`{"id":"tz4a98xxat96iws9zmbrgj3a","time":1764560000000,"role":"user","ev":{"t":"text","text":"a <b>&` + "\u2028" + `\"\\\n\u0001 é"}}`},
	{"agent text", agent(Event{T: TypeText, Text: "hi"}),
		`{"id":"tz4a98xxat96iws9zmbrgj3a","time":1764560000000,"role":"agent","turn":"k2v9x0c4b7n1m5q8w3e6r0t2","ev":{"t":"text","text":"hi"}}`},
	{"thinking", agent(Event{T: TypeText, Text: "hm", Thinking: true}),
		`{"id":"tz4a98xxat96iws9zmbrgj3a","time":1764560000000,"role":"agent","turn":"k2v9x0c4b7n1m5q8w3e6r0t2","ev":{"t":"text","text":"hm","thinking":true}}`},
	{"service", agent(Event{T: TypeService, Text: "compacted"}),
		`{"id":"tz4a98xxat96iws9zmbrgj3a","time":1764560000000,"role":"agent","turn":"k2v9x0c4b7n1m5q8w3e6r0t2","ev":{"t":"service","text":"compacted"}}`},
	{"usage only", Envelope{ID: testID, Time: testTime, Role: RoleAgent, Usage: &Usage{InputTokens: 3, OutputTokens: 4}, Ev: Event{T: TypeService, Text: " \n"}},
		`{"id":"tz4a98xxat96iws9zmbrgj3a","time":1764560000000,"role":"agent","usage":{"input_tokens":3,"output_tokens":4},"ev":{"t":"service","text":" \n"}}`},
	{"everything around", Envelope{
		ID: testID, Time: testTime, Role: RoleAgent, Turn: testTurn, Subagent: testSub, ClaudeUUID: "7d0b", CodexItemID: "item_1",
		Usage: &Usage{InputTokens: 1, OutputTokens: 0, CacheCreationInputTokens: ptr(0), CacheReadInputTokens: ptr(7), ContextWindow: ptr(200000), ServiceTier: "standard"},
		Ev:    Event{T: TypeText, Text: "hi"}},
		`{"id":"tz4a98xxat96iws9zmbrgj3a","time":1764560000000,"role":"agent","turn":"k2v9x0c4b7n1m5q8w3e6r0t2","subagent":"ca7763be45664ba61b8a6ac8","claudeUuid":"7d0b","codexItemId":"item_1","usage":{"input_tokens":1,"output_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":7,"context_window":200000,"service_tier":"standard"},"ev":{"t":"text","text":"hi"}}`},
	{"tool start", agent(Event{T: TypeToolStart, Call: "c1", Name: "Bash", Title: "List", Description: "", Args: json.RawMessage(`{"command":"ls <x>"}`)}),
		`{"id":"tz4a98xxat96iws9zmbrgj3a","time":1764560000000,"role":"agent","turn":"k2v9x0c4b7n1m5q8w3e6r0t2","ev":{"t":"tool-call-start","call":"c1","name":"Bash","title":"List","description":"","args":{"command":"ls <x>"}}}`},
	{"tool end", agent(Event{T: TypeToolEnd, Call: "c1"}),
		`{"id":"tz4a98xxat96iws9zmbrgj3a","time":1764560000000,"role":"agent","turn":"k2v9x0c4b7n1m5q8w3e6r0t2","ev":{"t":"tool-call-end","call":"c1"}}`},
	{"file", user(Event{T: TypeFile, Ref: "up_1", Name: "a.pdf", Size: 9}),
		`{"id":"tz4a98xxat96iws9zmbrgj3a","time":1764560000000,"role":"user","ev":{"t":"file","ref":"up_1","name":"a.pdf","size":9}}`},
	{"image", user(Event{T: TypeFile, Ref: "up_1", Name: "a.png", Size: 9, MimeType: "image/png", Image: &Image{Width: 8, Height: 6, Thumbhash: "aGk="}}),
		`{"id":"tz4a98xxat96iws9zmbrgj3a","time":1764560000000,"role":"user","ev":{"t":"file","ref":"up_1","name":"a.png","size":9,"mimeType":"image/png","image":{"width":8,"height":6,"thumbhash":"aGk="}}}`},
	{"turn start", agent(Event{T: TypeTurnStart}),
		`{"id":"tz4a98xxat96iws9zmbrgj3a","time":1764560000000,"role":"agent","turn":"k2v9x0c4b7n1m5q8w3e6r0t2","ev":{"t":"turn-start"}}`},
	{"turn completed", agent(Event{T: TypeTurnEnd, Status: StatusCompleted}),
		`{"id":"tz4a98xxat96iws9zmbrgj3a","time":1764560000000,"role":"agent","turn":"k2v9x0c4b7n1m5q8w3e6r0t2","ev":{"t":"turn-end","status":"completed"}}`},
	{"turn failed", agent(Event{T: TypeTurnEnd, Status: StatusFailed}),
		`{"id":"tz4a98xxat96iws9zmbrgj3a","time":1764560000000,"role":"agent","turn":"k2v9x0c4b7n1m5q8w3e6r0t2","ev":{"t":"turn-end","status":"failed"}}`},
	{"turn cancelled", agent(Event{T: TypeTurnEnd, Status: StatusCancelled}),
		`{"id":"tz4a98xxat96iws9zmbrgj3a","time":1764560000000,"role":"agent","turn":"k2v9x0c4b7n1m5q8w3e6r0t2","ev":{"t":"turn-end","status":"cancelled"}}`},
	{"start", child(Event{T: TypeStart, Title: "Scout"}),
		`{"id":"tz4a98xxat96iws9zmbrgj3a","time":1764560000000,"role":"agent","turn":"k2v9x0c4b7n1m5q8w3e6r0t2","subagent":"ca7763be45664ba61b8a6ac8","ev":{"t":"start","title":"Scout"}}`},
	{"start without title", child(Event{T: TypeStart}),
		`{"id":"tz4a98xxat96iws9zmbrgj3a","time":1764560000000,"role":"agent","turn":"k2v9x0c4b7n1m5q8w3e6r0t2","subagent":"ca7763be45664ba61b8a6ac8","ev":{"t":"start"}}`},
	{"stop", child(Event{T: TypeStop}),
		`{"id":"tz4a98xxat96iws9zmbrgj3a","time":1764560000000,"role":"agent","turn":"k2v9x0c4b7n1m5q8w3e6r0t2","subagent":"ca7763be45664ba61b8a6ac8","ev":{"t":"stop"}}`},
}

var (
	genID    = rapid.StringMatching(`[a-z][0-9a-z]{1,31}`)
	genCount = rapid.Int64Range(0, maxSafeInt)
	genMaybe = rapid.Ptr(genCount, true)
	genWord  = rapid.StringN(1, 20, -1)
)

// genEnvelope draws valid envelopes of every kind.
var genEnvelope = rapid.Custom(func(t *rapid.T) Envelope {
	e := Envelope{
		ID:   genID.Draw(t, "id"),
		Time: rapid.Int64Range(1, maxSafeInt).Draw(t, "time"),
		Role: RoleAgent,
		Turn: genID.Draw(t, "turn"),
	}
	if rapid.Bool().Draw(t, "has subagent") {
		e.Subagent = genID.Draw(t, "subagent")
	}
	if rapid.Bool().Draw(t, "has origin") {
		e.ClaudeUUID, e.CodexItemID = rapid.String().Draw(t, "claudeUuid"), rapid.String().Draw(t, "codexItemId")
	}
	if rapid.Bool().Draw(t, "has usage") {
		e.Usage = &Usage{
			InputTokens: genCount.Draw(t, "in"), OutputTokens: genCount.Draw(t, "out"),
			CacheCreationInputTokens: genMaybe.Draw(t, "cache made"), CacheReadInputTokens: genMaybe.Draw(t, "cache read"),
			ContextWindow: rapid.Ptr(rapid.Int64Range(1, maxSafeInt), true).Draw(t, "window"), ServiceTier: rapid.String().Draw(t, "tier"),
		}
	}
	e.Ev = genEvent.Draw(t, "ev")
	switch e.Ev.T {
	case TypeText, TypeFile:
		if rapid.Bool().Draw(t, "by user") {
			e.Role, e.Turn = RoleUser, ""
		}
	case TypeService:
		if e.Usage != nil && rapid.Bool().Draw(t, "usage only") {
			e.Turn, e.Ev.Text = "", rapid.SampledFrom([]string{"", " ", "\n\t"}).Draw(t, "blank")
		}
	case TypeStart, TypeStop:
		e.Subagent = genID.Draw(t, "child")
	}
	return e
})

var genEvent = rapid.Custom(func(t *rapid.T) Event {
	ev := Event{T: rapid.SampledFrom([]Type{
		TypeText, TypeService, TypeToolStart, TypeToolEnd, TypeFile, TypeTurnStart, TypeTurnEnd, TypeStart, TypeStop,
	}).Draw(t, "t")}
	switch ev.T {
	case TypeText:
		ev.Text, ev.Thinking = rapid.String().Draw(t, "text"), rapid.Bool().Draw(t, "thinking")
	case TypeService:
		ev.Text = rapid.String().Draw(t, "text")
	case TypeToolStart:
		ev.Call, ev.Name = genWord.Draw(t, "call"), genWord.Draw(t, "name")
		ev.Title, ev.Description = rapid.String().Draw(t, "title"), rapid.String().Draw(t, "description")
		args, err := json.Marshal(rapid.MapOf(rapid.String(), rapid.OneOf(
			rapid.Just[any](nil), rapid.String().AsAny(), rapid.Int64().AsAny(), rapid.Bool().AsAny(),
			rapid.SliceOf(rapid.String()).AsAny(), rapid.MapOf(rapid.String(), rapid.Float64()).AsAny(),
		)).Draw(t, "args"))
		if err != nil {
			t.Fatal(err)
		}
		ev.Args = args
	case TypeToolEnd:
		ev.Call = genWord.Draw(t, "call")
	case TypeFile:
		ev.Ref, ev.Name, ev.Size = genWord.Draw(t, "ref"), rapid.String().Draw(t, "name"), genCount.Draw(t, "size")
		ev.MimeType = rapid.SampledFrom([]string{"", "image/png"}).Draw(t, "mimeType")
		if rapid.Bool().Draw(t, "has image") {
			ev.Image = &Image{
				Width: rapid.IntRange(1, 1<<20).Draw(t, "width"), Height: rapid.IntRange(1, 1<<20).Draw(t, "height"),
				Thumbhash: rapid.String().Draw(t, "thumbhash"),
			}
		}
	case TypeTurnEnd:
		ev.Status = rapid.SampledFrom([]Status{StatusCompleted, StatusFailed, StatusCancelled}).Draw(t, "status")
	case TypeStart:
		ev.Title = rapid.String().Draw(t, "title")
	}
	return ev
})

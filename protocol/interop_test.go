package protocol

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"github.com/happyd/happyd/internal/nodetest"
)

// verdict is what the official schema says about one message.
type verdict struct {
	OK       bool
	Reason   string
	Envelope json.RawMessage
}

// judge shows messages, one a line, to the official schema.
func judge(t *testing.T, messages [][]byte) []verdict {
	t.Helper()
	out := bytes.Split(bytes.TrimSpace(nodetest.Run(t, "schema.mjs", append(bytes.Join(messages, []byte("\n")), '\n'))), []byte("\n"))
	if len(out) != len(messages) {
		t.Fatalf("%d verdicts on %d messages", len(out), len(messages))
	}
	verdicts := make([]verdict, len(out))
	for i, line := range out {
		if err := json.Unmarshal(line, &verdicts[i]); err != nil {
			t.Fatal(err)
		}
	}
	return verdicts
}

func TestSchemaAcceptsWhatWeAccept(t *testing.T) {
	nodetest.Dir(t)
	var envelopes []Envelope
	for _, s := range samples {
		envelopes = append(envelopes, s.e)
	}
	for seed := range 150 {
		envelopes = append(envelopes, genEnvelope.Example(seed))
	}
	kinds := map[Type]int{}
	messages := make([][]byte, len(envelopes))
	for i, e := range envelopes {
		kinds[e.Ev.T]++
		var err error
		if messages[i], err = Wrap(e); err != nil {
			t.Fatal(err)
		}
	}
	if len(kinds) != 9 {
		t.Errorf("only these events were drawn: %v", kinds)
	}
	for i, v := range judge(t, messages) {
		if !v.OK {
			t.Errorf("the schema refuses %s: %s", messages[i], v.Reason)
			continue
		}
		// What comes out of the schema must be what was meant.
		got, err := Decode(v.Envelope)
		if err != nil {
			t.Errorf("the schema's reading of %s does not decode: %v", messages[i], err)
			continue
		}
		want := envelopes[i]
		if want.Ev.T == TypeToolStart {
			if !reflect.DeepEqual(canonical(t, got.Ev.Args), canonical(t, want.Ev.Args)) {
				t.Errorf("the schema reads the args of %s as %s", messages[i], got.Ev.Args)
			}
			got.Ev.Args, want.Ev.Args = nil, nil
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("the schema reads %s as %s", messages[i], v.Envelope)
		}
	}
}

func canonical(t *testing.T, raw json.RawMessage) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Error(err)
	}
	return v
}

// Whatever Decode takes, the schema takes; and the cases that are marked as its
// refusals are.
func TestSchemaRefusals(t *testing.T) {
	nodetest.Dir(t)
	var names []string
	var messages [][]byte
	var ours []bool
	for _, r := range refused {
		if r.in == "" {
			continue
		}
		names, ours = append(names, r.name), append(ours, r.ours)
		messages = append(messages, fmt.Appendf(nil, `{"role":"session","content":%s}`, r.in))
	}
	for i, v := range judge(t, messages) {
		if v.OK != ours[i] {
			t.Errorf("%s: the schema says ok=%v (%s)", names[i], v.OK, v.Reason)
		}
	}
}

// Envelopes with one wrong value each: nothing may pass Decode and fail the schema.
func TestDecodeIsAtLeastAsStrictAsTheSchema(t *testing.T) {
	nodetest.Dir(t)
	values := []string{`null`, `1`, `-1`, `1.5`, `1e400`, `"x"`, `"a1"`, `""`, `true`, `[]`, `{}`, `{"t":"stop"}`, `"\ud800"`}
	var messages [][]byte
	accepted := map[int]bool{}
	for _, s := range samples {
		var envelope map[string]json.RawMessage
		if err := json.Unmarshal([]byte(s.json), &envelope); err != nil {
			t.Fatal(err)
		}
		var event map[string]json.RawMessage
		if err := json.Unmarshal(envelope["ev"], &event); err != nil {
			t.Fatal(err)
		}
		for _, change := range []struct {
			object map[string]json.RawMessage
			event  bool
		}{{envelope, false}, {event, true}} {
			for key := range change.object {
				for _, value := range append([]string{""}, values...) {
					changed := map[string]json.RawMessage{}
					for k, v := range change.object {
						changed[k] = v
					}
					if changed[key] = json.RawMessage(value); value == "" {
						delete(changed, key)
					}
					if change.event {
						changed = map[string]json.RawMessage{
							"id": envelope["id"], "time": envelope["time"], "role": envelope["role"],
							"turn": json.RawMessage(`"t2"`), "subagent": json.RawMessage(`"s3"`), "ev": toObject(t, changed),
						}
					}
					b := toObject(t, changed)
					if _, err := Decode(b); err == nil {
						accepted[len(messages)] = true
					}
					messages = append(messages, fmt.Appendf(nil, `{"role":"session","content":%s}`, b))
				}
			}
		}
	}
	refusals := 0
	for i, v := range judge(t, messages) {
		if accepted[i] && !v.OK {
			t.Errorf("we accept what the schema refuses (%s): %s", v.Reason, messages[i])
		}
		if !v.OK {
			refusals++
		}
	}
	if len(accepted) == 0 || refusals == 0 {
		t.Errorf("of %d messages we accept %d and the schema refuses %d", len(messages), len(accepted), refusals)
	}
}

func toObject(t *testing.T, m map[string]json.RawMessage) json.RawMessage {
	t.Helper()
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

package uplink

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/happyd/happyd/protocol"
	"github.com/happyd/happyd/store"
	"github.com/happyd/happyd/uplink/fakehappy"
)

func TestTooLarge(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.fake.SetFault(fakehappy.TooLarge(65536))
		long := strings.Repeat("Ä\n", 70_000)
		args, err := json.Marshal(map[string]string{"command": strings.Repeat("\"", 200_000), "sessionSubagent": "abc", "description": "short"})
		if err != nil {
			t.Fatal(err)
		}
		var ms []store.Message
		for i := range 60 {
			ms = append(ms, r.seal("a", r.envelope("a", protocol.Event{T: protocol.TypeText, Text: strings.Repeat("x", 3000+i)})))
		}
		ms = append(ms,
			r.seal("a", r.envelope("a", protocol.Event{T: protocol.TypeText, Text: long})),
			r.seal("a", r.envelope("a", protocol.Event{T: protocol.TypeToolStart, Call: "c1", Name: "Agent", Title: "t", Description: "d", Args: args})),
			r.seal("a", r.envelope("a", protocol.Event{T: protocol.TypeToolEnd, Call: "c1"})))
		r.commit(store.Commit{Session: "a", Info: r.info("a", "t", 0), Messages: ms})
		r.say("b", 2)
		r.start()
		settle(time.Minute)
		got := r.received("a")
		if len(got) != 63 {
			t.Fatalf("the server has %d messages\n%s", len(got), r.logs)
		}
		for i, e := range got {
			if e.Time != int64(1001+i) {
				t.Fatalf("message %d is in another's place", i)
			}
		}
		text := got[60].Ev.Text
		if !strings.HasPrefix(text, "Ä\nÄ\n") || !strings.HasSuffix(text, "is more than the server takes]") || strings.Count(text, "cut by happyd") != 1 {
			t.Errorf("text ends with %q", text[len(text)-100:])
		}
		tool := got[61].Ev
		var in map[string]string
		if err := json.Unmarshal(tool.Args, &in); err != nil || in["sessionSubagent"] != "abc" || in["description"] != "short" ||
			strings.Count(in["command"], "cut by happyd") != 1 || tool.Call != "c1" {
			t.Errorf("args %.100s, %v", tool.Args, err)
		}
		st := r.sessionStatus("a")
		if st.State != SessionParked || st.Parked != 2 || !strings.Contains(st.Reason, "413") {
			t.Errorf("status %+v", st)
		}
		if n := r.posts(); n > 40 {
			t.Errorf("%d POSTs", n)
		}
		r.wantTexts("b", 2)
	})
}

// TestPoisonedMessage: the server fails for good on one message.
func TestPoisonedMessage(t *testing.T) {
	for _, status := range []int{500, 504, 400} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				var ms []store.Message
				for range 40 {
					ms = append(ms, r.seal("a", r.envelope("a", protocol.Event{T: protocol.TypeText, Text: fmt.Sprintf("m%d", r.seq["a"]+1)})))
				}
				poison := ms[16].LocalID
				r.fake.SetFault(func(q fakehappy.Request) fakehappy.Fault {
					if q.IsMessages() && strings.Contains(string(q.Body), poison) {
						return fakehappy.Fault{Status: status}
					}
					return fakehappy.Fault{}
				})
				r.commit(store.Commit{Session: "a", Info: r.info("a", "t", 0), Messages: ms})
				r.start()
				settle(time.Second)
				r.say("b", 3)
				settle(2 * time.Minute)
				r.wantTexts("b", 3) // not held up
				settle(time.Hour)
				got := r.received("a")
				if len(got) != 40 {
					t.Fatalf("the server has %d messages\n%s", len(got), r.logs)
				}
				for i, e := range got {
					if i == 16 {
						if e.Ev.T != protocol.TypeService || e.Turn != got[15].Turn || e.Time != 1017 || !strings.Contains(e.Ev.Text, "left out a text") {
							t.Errorf("in its place: %+v", e)
						}
					} else if e.Ev.Text != fmt.Sprintf("m%d", i+1) {
						t.Errorf("message %d is %q", i, e.Ev.Text)
					}
				}
				if st := r.sessionStatus("a"); st.State != SessionParked || st.Parked != 1 || st.Reason == "" {
					t.Errorf("status %+v", st)
				}
			})
		})
	}
}

// TestLongServerErrorParksNothing: everything fails for hours.
func TestLongServerErrorParksNothing(t *testing.T) {
	for _, status := range []int{500, 502, 503} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				r.say("a", 1)
				r.start()
				settle(time.Second)
				r.fake.SetFault(func(fakehappy.Request) fakehappy.Fault { return fakehappy.Fault{Status: status} })
				r.say("a", 1)
				settle(3 * time.Hour)
				if st := r.status(); st.State != StateOffline || st.Queued != 1 {
					t.Errorf("status %+v", st)
				}
				r.fake.SetFault(nil)
				settle(2 * time.Minute)
				r.wantTexts("a", 2)
				if st := r.sessionStatus("a"); st.Parked != 0 {
					t.Errorf("status %+v", st)
				}
			})
		})
	}
}

// TestServerThatTakesNothing: it refuses even the line about the refusal.
func TestServerThatTakesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.fake.SetFault(fakehappy.TooLarge(10))
		r.say("a", 4)
		r.start()
		before := r.posts()
		settle(time.Hour)
		if st := r.status(); st.State != StateWrongServer || st.Queued != 4 {
			t.Errorf("status %+v", st)
		}
		if n := r.posts() - before; n > 200 {
			t.Errorf("%d POSTs in an hour", n)
		}
	})
}

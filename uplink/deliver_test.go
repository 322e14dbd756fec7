package uplink

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/happyd/happyd/protocol"
	"github.com/happyd/happyd/store"
	"github.com/happyd/happyd/uplink/fakehappy"
)

func TestDeliversInOrderInBatches(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.say("a", 230)
		r.say("b", 3)
		r.start()
		settle(time.Minute)
		r.say("a", 1)
		settle(time.Second)
		r.wantTexts("a", 231)
		r.wantTexts("b", 3)
		if n := r.posts(); n != 5+1+1 {
			t.Errorf("%d POSTs", n)
		}
		st := r.sessionStatus("a")
		if st.State != SessionOK || st.Acked != 231 || st.ServerID == "" {
			t.Errorf("status %+v", st)
		}
		if s := r.status(); s.State != StateOnline || s.Queued != 0 || s.Hint != "" || !s.Socket.Connected {
			t.Errorf("status %+v", s)
		}
		if got := r.fake.Machines(); !reflect.DeepEqual(got, map[string]string{"machine-1": "acc"}) {
			t.Errorf("machines %v", got)
		}
	})
}

func TestBatchesAreBoundedByBytes(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		var ms []store.Message
		for range 10 {
			ms = append(ms, r.seal("a", r.envelope("a", protocol.Event{T: protocol.TypeText, Text: strings.Repeat("x", 20_000)})))
		}
		ms = append(ms, r.seal("a", r.envelope("a", protocol.Event{T: protocol.TypeText, Text: strings.Repeat("y", 200_000)})))
		r.commit(store.Commit{Session: "a", Info: r.info("a", "t", 0), Messages: ms})
		r.start(func(o *Options) { o.BatchBytes = 100_000 })
		settle(time.Minute)
		if got := len(r.received("a")); got != 11 {
			t.Fatalf("the server has %d messages", got)
		}
		var over int
		for _, q := range r.fake.Requests() {
			if q.IsMessages() && q.Size > 101_000 {
				over++
			}
		}
		if over != 1 {
			t.Errorf("%d bodies over the limit, want the one message that is", over)
		}
	})
}

// TestExactlyOnceThroughRandomFaults: whatever the server does, each message
// is there once and in order, and none was given up.
func TestExactlyOnceThroughRandomFaults(t *testing.T) {
	for seed := range uint64(6) {
		inBubble(t, func(t *testing.T, r *rig) {
			rng := rand.New(rand.NewPCG(seed, 1))
			r.fake.SetFault(func(q fakehappy.Request) fakehappy.Fault {
				switch r.random(rng, 14) {
				case 0:
					return fakehappy.Fault{Status: 500}
				case 1:
					return fakehappy.Fault{DropAnswer: true}
				case 2:
					return fakehappy.Fault{Drop: true}
				case 3:
					return fakehappy.Fault{Delay: time.Duration(r.random(rng, 40)) * time.Second}
				case 4:
					return fakehappy.Fault{Status: 429, RetryAfter: "2"}
				case 5:
					return fakehappy.Fault{Status: 503}
				case 6:
					return fakehappy.Fault{Status: 401}
				}
				return fakehappy.Fault{}
			})
			r.start()
			sessions := []string{"a", "b", "c", "d", "e", "f"}
			for range 40 {
				r.say(sessions[r.random(rng, len(sessions))], 1+r.random(rng, 60))
				settle(time.Duration(r.random(rng, 5000)) * time.Millisecond)
				switch r.random(rng, 10) {
				case 0:
					r.fake.CloseSockets()
				case 1:
					r.fake.Down()
					settle(time.Duration(r.random(rng, 60)) * time.Second)
					if err := r.fake.Up(); err != nil {
						t.Fatal(err)
					}
				case 2:
					r.stop()
					r.start()
				case 3:
					r.up.NetworkChanged()
				}
			}
			settle(2 * time.Hour)
			for _, s := range sessions {
				if r.seq[s] > 0 {
					r.wantTexts(s, r.seq[s])
					if st := r.sessionStatus(s); st.Parked != 0 || st.State != SessionOK {
						t.Errorf("seed %d: %+v", seed, st)
					}
				}
			}
		})
	}
}

// random draws under the rig's lock, as faults are decided by several
// goroutines.
func (r *rig) random(rng *rand.Rand, n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return rng.IntN(n)
}

func TestDeletedSessionStaysDeleted(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.say("a", 3)
		r.say("b", 3)
		r.start()
		settle(time.Second)
		ses, _ := r.fake.ByTag(r.tag("a"))
		r.fake.Delete(ses.ID)
		r.say("a", 5)
		r.say("b", 5)
		settle(time.Minute)
		r.say("a", 5) // the bridge had more in hand
		r.say("b", 1)
		settle(time.Hour)
		r.wantTexts("b", 9)
		if _, ok := r.fake.ByTag(r.tag("a")); ok {
			t.Error("the session was made again")
		}
		if q := r.scope.Queued("a"); q.Count != 0 {
			t.Errorf("its queue still holds %d", q.Count)
		}
		if !reflect.DeepEqual(r.gone, []string{"a"}) {
			t.Errorf("gone: %v", r.gone)
		}
		if st := r.sessionStatus("a"); st.State != SessionGone {
			t.Errorf("status %+v", st)
		}
		if st := r.sessionStatus("b"); st.State != SessionOK {
			t.Errorf("status %+v", st)
		}
	})
}

func TestResetServerIsNotADeletion(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.say("a", 3)
		r.start()
		settle(time.Second)
		// The server's database is new; the same login is another account there.
		r.fake.Reset()
		r.fake.Revoke(r.token)
		fresh := fakehappy.Token("acc2")
		r.fake.Accept(fresh, "acc2")
		r.mu.Lock()
		r.token = fresh
		r.mu.Unlock()
		r.say("a", 4)
		settle(time.Minute)
		if len(r.gone) != 0 {
			t.Errorf("gone: %v", r.gone)
		}
		if got := r.received("a"); len(got) != 4 || got[0].Ev.Text != "m4" {
			t.Errorf("the server has %d messages", len(got))
		}
	})
}

func TestVanishedAccountIsNotADeletion(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.say("a", 3)
		r.start()
		settle(time.Second)
		ses, _ := r.fake.ByTag(r.tag("a"))
		r.fake.Delete(ses.ID)
		// Its token is still signed right, but writing fails.
		r.fake.SetFault(func(q fakehappy.Request) fakehappy.Fault {
			if q.Path == "/v1/machines" || q.Path == "/v1/sessions" {
				return fakehappy.Fault{Status: 500}
			}
			return fakehappy.Fault{}
		})
		r.say("a", 2)
		settle(10 * time.Minute)
		if len(r.gone) != 0 || r.scope.Queued("a").Count != 2 {
			t.Errorf("gone %v, queued %d", r.gone, r.scope.Queued("a").Count)
		}
		if st := r.sessionStatus("a"); st.State != SessionFailed || st.Reason == "" {
			t.Errorf("status %+v", st)
		}
	})
}

func TestForeignKeyUnderTheTag(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.fake.Put(fakehappy.Session{Tag: r.acc.Tag("claude", "a", 0), Account: "acc", Key: "b3RoZXI="})
		r.say("a", 3)
		r.start()
		settle(time.Minute)
		if !reflect.DeepEqual(r.anew, []string{"a"}) || r.posts() != 0 {
			t.Fatalf("new generations %v, posts %d", r.anew, r.posts())
		}
		// The bridge starts the session again under another tag.
		r.seq["a"] = 0
		r.commit(store.Commit{Session: "a", Info: r.info("a", "t", 1), DropOutbox: true})
		r.say("a", 4)
		settle(time.Minute)
		r.wantTexts("a", 4)
		if len(r.anew) != 1 {
			t.Errorf("asked %d times", len(r.anew))
		}
	})
}

func TestSessionFoundAgainByItsTag(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.say("a", 3)
		r.start()
		settle(time.Second)
		r.stop()
		// The state directory is deleted; the log is read from its start again.
		r.store.Close()
		r.path += ".new"
		r.openStore()
		r.seq["a"] = 0
		r.up = nil
		r.say("a", 5)
		r.start()
		settle(time.Minute)
		r.wantTexts("a", 5)
		if n := len(r.fake.Sessions()); n != 1 {
			t.Errorf("%d sessions", n)
		}
	})
}

func TestMachineIDOfAnotherAccount(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.fake.OwnMachine("machine-1", "other")
		r.say("a", 1)
		r.start()
		settle(10 * time.Minute)
		id := r.up.MachineID()
		if id == "machine-1" || r.fake.Machines()[id] != "acc" || len(r.fake.Machines()) != 2 {
			t.Errorf("machine %q, server has %v", id, r.fake.Machines())
		}
		r.wantTexts("a", 1)
		r.stop()
		r.start()
		settle(time.Minute)
		if r.up.MachineID() != id {
			t.Error("another id after a restart")
		}
	})
}

// TestAckIsNotedBeforeMoreIsSent: what the store could not take (a full disk)
// when the server had answered is noted later, and not sent again for that.
func TestAckIsNotedBeforeMoreIsSent(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.say("a", 3)
		r.start()
		settle(time.Second)
		r.stop()
		r.up = nil
		r.say("a", 2)
		es, err := r.scope.Peek("a", 10, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		before := r.posts()
		up, err := New(r.options())
		if err != nil {
			t.Fatal(err)
		}
		up.session("a").unnoted = &ack{r.tag("a"), es[0].Seq, 4}
		if more, delay := up.deliver(t.Context(), "a"); !more || delay != 0 {
			t.Errorf("more %v, delay %v", more, delay)
		}
		if q := r.scope.Queued("a"); q.Count != 1 || r.posts() != before {
			t.Errorf("%d wait, %d POSTs", q.Count, r.posts()-before)
		}
	})
}

func TestFailingStoreCausesNoTraffic(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.say("a", 1)
		r.start()
		settle(time.Second)
		before := len(r.fake.Requests())
		r.store.Close()
		r.up.Wake("a")
		settle(time.Minute)
		if n := len(r.fake.Requests()) - before; n != 0 {
			t.Errorf("%d requests", n)
		}
	})
}

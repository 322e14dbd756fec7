package uplink

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/happyd/happyd/uplink/fakehappy"
)

func TestRefusedToken(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.say("a", 2)
		r.start()
		settle(time.Second)
		r.fake.Revoke(r.token)
		before := len(r.fake.Requests())
		for range 10 {
			r.say("a", 5)
			settle(time.Minute)
		}
		if n := len(r.fake.Requests()) - before; n > 12 {
			t.Errorf("%d requests in 10 minutes, want about one a minute", n)
		}
		st := r.status()
		if st.State != StateAuthRequired || st.Hint == "" || st.NextTry == nil || st.Queued != 50 || st.Socket.Connected && st.Socket.Error != "" {
			t.Errorf("status %+v", st)
		}
		fresh := fakehappy.Token("acc") + "x"
		r.fake.Accept(fresh, "acc")
		r.mu.Lock()
		r.token = fresh
		r.mu.Unlock()
		r.creds <- struct{}{}
		settle(2 * time.Second)
		r.wantTexts("a", 52)
		if st := r.status(); st.State != StateOnline {
			t.Errorf("status %+v", st)
		}
		if strings.Contains(r.logs.String(), fresh) {
			t.Error("the token is in the log")
		}
	})
}

func TestNewTokenIsFoundWithoutBeingTold(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.fake.Revoke(r.token)
		r.say("a", 1)
		r.start()
		settle(10 * time.Second)
		fresh := fakehappy.Token("acc") + "x"
		r.fake.Accept(fresh, "acc")
		r.mu.Lock()
		r.token = fresh
		r.mu.Unlock()
		settle(6 * time.Second)
		r.wantTexts("a", 1)
	})
}

func TestUnreadableCredentials(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.say("a", 1)
		missing := true
		r.start(func(o *Options) {
			token := o.Token
			o.Token = func() (string, error) {
				r.mu.Lock()
				gone := missing
				r.mu.Unlock()
				if gone {
					return "", errors.New("no such file")
				}
				return token()
			}
		})
		settle(time.Hour)
		if st := r.status(); st.State != StateAuthRequired || !strings.Contains(st.Reason, "no such file") || len(r.fake.Requests()) != 0 {
			t.Errorf("status %+v after %d requests", st, len(r.fake.Requests()))
		}
		r.mu.Lock()
		missing = false
		r.mu.Unlock()
		settle(6 * time.Second)
		r.wantTexts("a", 1)
	})
}

func TestRateLimitIsSharedByAllSessions(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.start()
		settle(time.Second)
		r.fake.SetFault(fakehappy.Sequence(fakehappy.Request.IsMessages,
			fakehappy.Fault{Status: 429, RetryAfter: "7"}, fakehappy.Fault{Status: 503}, fakehappy.Fault{Status: 503}))
		r.say("a", 2)
		settle(time.Second)
		limited := time.Now()
		before := len(r.fake.Requests())
		r.say("b", 2)
		r.up.NetworkChanged() // no reason to ask earlier either
		settle(5900 * time.Millisecond)
		if n := len(r.fake.Requests()) - before; n != 0 {
			t.Errorf("%d requests within Retry-After (since %v)", n, limited)
		}
		settle(2 * time.Minute)
		r.wantTexts("a", 2)
		r.wantTexts("b", 2)
	})
}

func TestOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.say("a", 1)
		r.start()
		settle(time.Second)
		r.fake.Down()
		r.say("a", 230)
		r.say("b", 5)
		settle(30 * time.Minute)
		st := r.status()
		if st.State != StateOffline || st.NextTry == nil || st.Queued != 235 || time.Since(st.Since) < 29*time.Minute {
			t.Errorf("status %+v", st)
		}
		if wait := time.Until(*st.NextTry); wait > backoffCap {
			t.Errorf("waits %v", wait)
		}
		r.stop()
		r.start() // nothing is lost over a restart in the outage
		settle(20 * time.Minute)
		if err := r.fake.Up(); err != nil {
			t.Fatal(err)
		}
		settle(backoffCap + time.Second)
		r.wantTexts("a", 231)
		r.wantTexts("b", 5)
	})
}

func TestWakeFromSleepAndNetworkChange(t *testing.T) {
	for name, wake := range map[string]func(*rig){
		"network changed": func(r *rig) { r.up.NetworkChanged() },
		"clock jumped": func(r *rig) {
			r.mu.Lock()
			r.wall += time.Hour
			r.mu.Unlock()
			settle(clockTick)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				r.say("a", 1)
				// With the longest waits there are.
				r.start(func(o *Options) { o.Random = func() float64 { return 1 } })
				settle(time.Second)
				r.fake.Down()
				r.say("a", 3)
				settle(20*time.Minute + 20*time.Second) // in the middle of a wait
				if err := r.fake.Up(); err != nil {
					t.Fatal(err)
				}
				wait := time.Until(*r.status().NextTry)
				wake(r)
				settle(time.Second)
				if wait < 10*time.Second {
					t.Fatalf("the next try was only %v away, the test shows nothing", wait)
				}
				r.wantTexts("a", 4)
				if !r.status().Socket.Connected {
					t.Error("the socket was not dialed anew")
				}
			})
		})
	}
}

func TestHangingRequestIsGivenUpOnNetworkChange(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.say("a", 1)
		r.start(func(o *Options) { o.Random = func() float64 { return 1 } }) // a failure would cost a second
		settle(time.Second)
		r.fake.SetFault(fakehappy.Sequence(fakehappy.Request.IsMessages, fakehappy.Fault{Delay: time.Hour}))
		r.say("a", 1)
		settle(time.Second)
		r.up.NetworkChanged()
		settle(500 * time.Millisecond)
		r.wantTexts("a", 2)
	})
}

func TestWrongServer(t *testing.T) {
	html := func(status int) fakehappy.Fault {
		return fakehappy.Fault{Status: status, Body: "<html>Sign in to the hotel's network</html>", ContentType: "text/html"}
	}
	for name, fault := range map[string]fakehappy.Fault{
		"a page":        html(200),
		"a redirect":    html(302),
		"a 404 page":    html(404),
		"forbidden":     html(403),
		"other JSON":    {Status: 200, Body: `{"ok":true}`},
		"an old server": {Status: 404, Body: `{"message":"Route POST:/v3/x not found","error":"Not Found","statusCode":404}`},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				r.say("a", 3)
				r.start()
				settle(time.Second)
				r.fake.SetFault(func(fakehappy.Request) fakehappy.Fault { return fault })
				r.say("a", 3)
				before := len(r.fake.Requests())
				settle(30 * time.Minute)
				st := r.status()
				if st.State != StateWrongServer || st.Hint == "" || st.Queued != 3 || len(r.gone) != 0 {
					t.Errorf("status %+v, gone %v", st, r.gone)
				}
				if n := len(r.fake.Requests()) - before; n > 120 {
					t.Errorf("%d requests", n)
				}
				r.fake.SetFault(nil)
				settle(2 * time.Minute)
				r.wantTexts("a", 6)
			})
		})
	}
}

func TestPause(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.say("a", 1)
		r.start()
		r.up.Presence("a", Presence{Alive: true})
		settle(time.Second)
		r.up.Pause()
		settle(time.Second)
		before := len(r.fake.Requests())
		r.say("a", 3)
		settle(time.Hour)
		if st := r.status(); st.State != StatePaused || st.Hint == "" || st.Queued != 3 || r.fake.Sockets() != 0 {
			t.Errorf("status %+v, %d sockets", st, r.fake.Sockets())
		}
		if n := len(r.fake.Requests()) - before; n != 0 {
			t.Errorf("%d requests while paused", n)
		}
		r.up.Resume()
		settle(time.Second)
		r.wantTexts("a", 4)
		if r.fake.Sockets() != 1 {
			t.Errorf("%d sockets", r.fake.Sockets())
		}
	})
}

func TestShutdownWithAHangingServer(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.say("a", 1)
		r.start()
		settle(time.Second)
		r.fake.SetFault(func(fakehappy.Request) fakehappy.Fault { return fakehappy.Fault{Delay: time.Hour} })
		r.fake.FreezeSockets()
		r.say("a", 3)
		settle(time.Second)
		if d := r.stop(); d > 2*time.Second {
			t.Errorf("Run took %v to end", d)
		}
		if q := r.scope.Queued("a"); q.Count != 3 {
			t.Errorf("%d messages wait", q.Count)
		}
	})
}

func TestShutdownLetsARequestFinish(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.say("a", 1)
		r.start()
		settle(time.Second)
		r.fake.SetFault(func(q fakehappy.Request) fakehappy.Fault { return fakehappy.Fault{Delay: 500 * time.Millisecond} })
		r.say("a", 3)
		settle(100 * time.Millisecond)
		r.stop()
		if q := r.scope.Queued("a"); q.Count != 0 {
			t.Errorf("%d messages are sent again at the next start", q.Count)
		}
	})
}

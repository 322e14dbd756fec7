package uplink

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/happyd/happyd/store"
	"github.com/happyd/happyd/uplink/fakehappy"
)

func (r *rig) remote(session string) fakehappy.Session {
	r.t.Helper()
	ses, ok := r.fake.ByTag(r.tag(session))
	if !ok {
		r.t.Fatalf("the server does not know %s", session)
	}
	return ses
}

func TestHeartbeats(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.say("a", 1)
		r.start()
		r.up.Presence("a", Presence{Alive: true})
		settle(2 * time.Minute)
		beats := r.remote("a").Alives
		if len(beats) < 6 || len(beats) > 8 || beats[0].Thinking {
			t.Fatalf("%d heartbeats in 2 minutes", len(beats))
		}
		changed := time.Now()
		r.up.Presence("a", Presence{Alive: true, Thinking: true})
		synctest.Wait()
		last := r.remote("a").Alives
		if b := last[len(last)-1]; !b.Thinking || !b.At.Equal(changed) {
			t.Errorf("the change was told %v late: %+v", b.At.Sub(changed), b)
		}
		settle(5 * time.Minute)
		beats = r.remote("a").Alives
		for i := 1; i < len(beats); i++ {
			if d := beats[i].At.Sub(beats[i-1].At); d > 25*time.Second {
				t.Errorf("%v between two heartbeats", d)
			}
		}
		if n := r.fake.SocketKinds(); !slices.Equal(n, []string{"session-scoped"}) {
			t.Errorf("sockets %v", n)
		}
	})
}

func TestEndAndRevival(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.say("a", 1)
		r.start()
		r.up.Presence("a", Presence{Alive: true})
		settle(time.Minute)
		r.up.Presence("a", Presence{})
		synctest.Wait()
		ses := r.remote("a")
		if ses.Active || len(ses.Ends) != 1 {
			t.Fatalf("after the end: active %v, %d ends", ses.Active, len(ses.Ends))
		}
		settle(10 * time.Minute)
		if n := len(r.remote("a").Ends); n != 1 {
			t.Errorf("%d ends", n)
		}
		r.up.Presence("a", Presence{})
		settle(10 * time.Second)
		// Started again within the minute in which heartbeats count for nothing.
		r.up.Presence("a", Presence{Alive: true})
		settle(time.Second)
		r.up.Presence("a", Presence{})
		settle(time.Second)
		r.up.Presence("a", Presence{Alive: true, Thinking: true})
		settle(time.Second)
		ses = r.remote("a")
		if !ses.Active || ses.Creates != 3 || !ses.Alives[len(ses.Alives)-1].Thinking {
			t.Errorf("after the revival: active %v, %d creates", ses.Active, ses.Creates)
		}
	})
}

func TestBackfilledSessionIsEndedAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.say("old", 120)
		r.start()
		r.up.Presence("old", Presence{})
		settle(5 * time.Second)
		if ses := r.remote("old"); ses.Active || len(ses.Alives) != 0 {
			t.Errorf("active %v, %d heartbeats", ses.Active, len(ses.Alives))
		}
		r.wantTexts("old", 120)
	})
}

func TestStaleServerStateIsCorrectedAfterARestart(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.say("told", 1)
		r.say("untold", 1)
		r.start()
		r.up.Presence("told", Presence{Alive: true, Thinking: true})
		r.up.Presence("untold", Presence{Alive: true, Thinking: true})
		settle(30 * time.Second)
		r.stop()
		if !r.remote("told").Active {
			t.Fatal("the shutdown ended the session, although its agent may live")
		}
		r.start()
		r.up.Presence("told", Presence{}) // its agent died meanwhile
		settle(time.Second)
		if r.remote("told").Active {
			t.Error("still shown as running")
		}
		if !r.remote("untold").Active {
			t.Error("ended before anybody could say that it lives")
		}
		settle(2 * time.Minute)
		if r.remote("untold").Active {
			t.Error("still shown as running although nobody says that it lives")
		}
	})
}

func TestEndIsToldAgainUntilItArrives(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.say("a", 1)
		r.start()
		r.up.Presence("a", Presence{Alive: true})
		settle(30 * time.Second)
		r.fake.FreezeSockets()
		r.up.Presence("a", Presence{})
		settle(3 * time.Minute)
		if r.remote("a").Active {
			t.Error("the end was lost with the connection")
		}
		_, ses, _, err := r.scope.Session("a")
		if err != nil || ses.Link.Active {
			t.Errorf("link %+v, %v", ses.Link, err)
		}
	})
}

// TestHalfOpenSocket: nothing comes through any more, and nothing is closed.
func TestHalfOpenSocket(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.say("a", 1)
		r.start()
		r.up.Presence("a", Presence{Alive: true})
		settle(5 * time.Second)
		r.fake.FreezeSockets()
		frozen := time.Now()
		r.say("a", 5)
		settle(time.Second)
		r.wantTexts("a", 6) // messages do not need the socket
		settle(2 * time.Minute)
		ses := r.remote("a")
		i := slices.IndexFunc(ses.Alives, func(a fakehappy.Alive) bool { return a.At.After(frozen) })
		if i < 0 {
			t.Fatal("no heartbeat since")
		}
		if d := ses.Alives[i].At.Sub(frozen); d > 62*time.Second {
			t.Errorf("noticed after %v", d)
		}
	})
}

func TestClosedSocketsComeBack(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.say("a", 1)
		r.start()
		r.up.Presence("a", Presence{Alive: true})
		settle(time.Second)
		for range 5 {
			r.fake.CloseSockets()
			settle(5 * time.Minute)
			if r.fake.Sockets() != 1 {
				t.Fatal("no connection")
			}
		}
		if n := len(r.fake.SocketKinds()); n != 6 {
			t.Errorf("%d connections", n)
		}
	})
}

// TestSocketCostsLittle: the connection is on the session that is not running,
// so what is sent does not come back over it.
func TestSocketCostsLittle(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.say("quiet", 1)
		r.say("busy", 1)
		r.start()
		r.up.Presence("quiet", Presence{})
		r.up.Presence("busy", Presence{Alive: true})
		settle(time.Second)
		r.up.NetworkChanged()
		settle(time.Second)
		r.up.mu.Lock()
		quiet := r.up.sessions["quiet"].serverID
		r.up.mu.Unlock()
		if r.up.anchor() != quiet {
			t.Error("the connection is on the busy session")
		}
	})
}

func TestMetadata(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		title := func() string {
			ses := r.remote("a")
			b, err := decode64(ses.Metadata)
			if err != nil {
				t.Fatal(err)
			}
			plain, err := r.keysOf(ses.Tag).Sealer.Open(b)
			if err != nil {
				t.Fatal(err)
			}
			return string(plain)
		}
		r.say("a", 1)
		r.start()
		settle(time.Second)
		if ses := r.remote("a"); ses.MetadataVersion != 0 {
			t.Errorf("version %d although the creation brought the metadata", ses.MetadataVersion)
		}
		r.commit(store.Commit{Session: "a", Info: r.info("a", "second", 0)})
		settle(time.Second)
		if got := title(); got != `{"summary":{"text":"second"}}` || r.remote("a").MetadataVersion != 1 {
			t.Errorf("metadata %s", got)
		}

		// Changed while there was no connection, and by someone else, too.
		r.fake.Down()
		r.commit(store.Commit{Session: "a", Info: r.info("a", "third", 0)})
		settle(time.Minute)
		r.fake.Meddle(r.remote("a").ID)
		if err := r.fake.Up(); err != nil {
			t.Fatal(err)
		}
		settle(2 * time.Minute)
		if got := title(); got != `{"summary":{"text":"third"}}` || r.remote("a").MetadataVersion != 3 {
			t.Errorf("metadata %s, version %d", got, r.remote("a").MetadataVersion)
		}

		// Changed while happyd was not running: the sealed form differs, the
		// content does not, and nothing is sent for that.
		r.stop()
		r.commit(store.Commit{Session: "a", Info: r.info("a", "third", 0)})
		r.start()
		settle(2 * time.Minute)
		if v := r.remote("a").MetadataVersion; v != 3 {
			t.Errorf("version %d", v)
		}
	})
}

func TestMetadataOfAnUnknownSessionDoesNotBlock(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.say("a", 1)
		r.say("b", 1)
		r.start()
		settle(time.Second)
		r.fake.Delete(r.remote("a").ID) // updates of it are never answered
		for _, s := range []string{"a", "b"} {
			r.commit(store.Commit{Session: s, Info: r.info(s, "new", 0)})
		}
		settle(time.Second)
		if v := r.remote("b").MetadataVersion; v != 1 {
			t.Errorf("version %d", v)
		}
		settle(time.Hour)
		r.up.meta.mu.Lock()
		waiting := len(r.up.meta.items)
		r.up.meta.mu.Unlock()
		if waiting != 0 {
			t.Error("it is tried for ever")
		}
	})
}

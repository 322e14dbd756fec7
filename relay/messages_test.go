package relay

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	_ "github.com/happyd/happyd/internal/rapidseed"
)

func contains(s string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(s, p) {
			return false
		}
	}
	return true
}

func TestMessagesAreKeptOnce(t *testing.T) {
	u := newBench(t).signIn("alice")
	path := "/v3/sessions/" + u.session("t") + "/messages"
	steps := []struct {
		name string
		send object
		want string
	}{
		{"first", batch("a", "b"), "1:a 2:b "},
		{"again", batch("a", "b"), "1:a 2:b "},
		{"again in another order", batch("b", "a"), "1:a 2:b "},
		{"some new", batch("c", "a", "d"), "1:a 3:c 4:d "},
		{"twice within a batch", batch("e", "e", "a", "a", "f"), "1:a 5:e 6:f "},
		{"other content", object{"messages": []object{{"content": "changed", "localId": "a"}}}, "1:a "},
		{"no ciphertext", object{"messages": []object{{"content": "", "localId": "g"}}}, "7:g "},
	}
	for _, s := range steps {
		if got := rows(u.ok("POST", path, s.send)); got != s.want {
			t.Errorf("%s: got %s, want %s", s.name, got, s.want)
		}
	}
	u.clock.move(time.Minute)
	answer := u.ok("POST", path, batch("a"))["messages"].([]any)[0].(object)
	delete(answer, "id")
	if got, want := compact(answer), `{"createdAt":1800000000000,"localId":"a","seq":1,"updatedAt":1800000000000}`; got != want {
		t.Errorf("answer %s, want %s", got, want)
	}
	first := u.ok("GET", path+"?after_seq=0&limit=1", nil)["messages"].([]any)[0].(object)
	delete(first, "id")
	if got, want := compact(first), `{"content":{"c":"content of a","t":"encrypted"},"createdAt":1800000000000,"localId":"a","seq":1,"updatedAt":1800000000000}`; got != want {
		t.Errorf("stored %s, want %s", got, want)
	}
}

func TestMessageLimits(t *testing.T) {
	b := newBench(t)
	u := b.signIn("alice")
	id := u.session("t")
	path := "/v3/sessions/" + id + "/messages"
	many := func(n int) object {
		ids := make([]string, n)
		for i := range ids {
			ids[i] = fmt.Sprint(i)
		}
		return batch(ids...)
	}
	for name, in := range map[string]any{
		"no messages":    object{},
		"null":           object{"messages": nil},
		"none":           many(0),
		"101":            many(101),
		"no localId":     object{"messages": []object{{"content": "x"}}},
		"empty localId":  object{"messages": []object{{"content": "x", "localId": ""}}},
		"long localId":   object{"messages": []object{{"content": "x", "localId": strings.Repeat("x", 2000)}}},
		"no content":     object{"messages": []object{{"localId": "x"}}},
		"number content": object{"messages": []object{{"content": 1, "localId": "x"}}},
		"object":         object{"messages": object{}},
	} {
		t.Run(name, func(t *testing.T) {
			body := u.fails(400, "POST", path, in)
			if body["statusCode"] != 400.0 || body["error"] != "Error" || body["message"] == "" {
				t.Errorf("answer %v", body)
			}
		})
	}
	u.ok("POST", path, many(100))
	for _, q := range []string{"limit=501", "limit=0", "limit=x", "after_seq=-1", "before_seq=0", "after_seq=1&before_seq=3", "after_seq=1.5"} {
		u.fails(400, "GET", path+"?"+q, nil)
	}
	u.fails(404, "POST", "/v3/sessions/unknown/messages", batch("a"))
	u.fails(404, "GET", "/v3/sessions/unknown/messages", nil)
	b.signIn("bob").fails(404, "POST", path, batch("a"))
	b.signIn("bob").fails(404, "GET", path, nil)

	big := object{"messages": []object{{"content": strings.Repeat("x", 5<<20), "localId": "big"}}}
	if got := rows(u.ok("POST", path, big)); got != "101:big " {
		t.Errorf("5 MiB: %s", got)
	}
	u.relay.maxBody = 1 << 20
	tooBig := object{"messages": []object{{"content": strings.Repeat("x", 1<<20), "localId": "too big"}}}
	u.fails(413, "POST", path, tooBig)
}

func TestPages(t *testing.T) {
	u := newBench(t).signIn("alice")
	path := "/v3/sessions/" + u.session("t") + "/messages"
	if got := compact(u.ok("GET", path, nil)); got != `{"hasMore":false,"messages":[]}` {
		t.Errorf("empty session: %s", got)
	}
	u.ok("POST", path, batch("a", "b", "c", "d", "e"))
	for q, want := range map[string]string{
		"after_seq=0":            "1:a 2:b 3:c 4:d 5:e false",
		"after_seq=0&limit=5":    "1:a 2:b 3:c 4:d 5:e false",
		"after_seq=1&limit=2":    "2:b 3:c true",
		"after_seq=5":            "false",
		"after_seq=9007199":      "false",
		"before_seq=4":           "3:c 2:b 1:a false",
		"before_seq=4&limit=2":   "3:c 2:b true",
		"before_seq=1":           "false",
		"before_seq=900&limit=1": "5:e true",
		"limit=2":                "5:e 4:d true",
		"":                       "5:e 4:d 3:c 2:b 1:a false",
	} {
		body := u.ok("GET", path+"?"+q, nil)
		if got := rows(body) + fmt.Sprint(body["hasMore"]); got != want {
			t.Errorf("%q: got %s, want %s", q, got, want)
		}
	}
}

// A page ends early when it gets heavy, and reading on still finds everything.
func TestHeavyPages(t *testing.T) {
	u := newBench(t).signIn("alice")
	path := "/v3/sessions/" + u.session("t") + "/messages"
	u.relay.maxPage = 32 << 10
	heavy := strings.Repeat("x", 9<<10)
	for i := range 6 {
		u.ok("POST", path, object{"messages": []object{{"content": heavy, "localId": fmt.Sprint(i)}}})
	}
	body := u.ok("GET", path+"?after_seq=0", nil)
	if got := rows(body); got != "1:0 2:1 3:2 4:3 " || body["hasMore"] != true {
		t.Errorf("first page %s, more %v", got, body["hasMore"])
	}
	if got := rows(u.ok("GET", path+"?after_seq=4", nil)); got != "5:4 6:5 " {
		t.Errorf("second page %s", got)
	}
}

// Posters that race on the same local ids store each once, without gaps; a
// listener hears the messages in the order of their numbers.
func TestConcurrentPosts(t *testing.T) {
	u := newBench(t).signIn("alice")
	id := u.session("t")
	path := "/v3/sessions/" + id + "/messages"
	l := u.connect(object{"clientType": "session-scoped", "sessionId": id})
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 10 {
				ids := make([]string, 5)
				for j := range ids {
					ids[j] = fmt.Sprintf("%d-%d-%d", worker%4, i, j) // two workers share each id
				}
				if status, body := u.do("POST", path, u.token, batch(ids...)); status != 200 {
					t.Errorf("post: %d %v", status, body)
				}
			}
		})
	}
	wg.Wait()
	body := u.ok("GET", path+"?after_seq=0&limit=500", nil)
	seen := map[any]bool{}
	for i, m := range body["messages"].([]any) {
		m := m.(object)
		if m["seq"] != float64(i+1) || seen[m["localId"]] {
			t.Fatalf("row %d is %v", i, m)
		}
		seen[m["localId"]] = true
	}
	if len(seen) != 200 {
		t.Errorf("%d messages of 200", len(seen))
	}
	for i, e := range l.settle() {
		var up struct {
			Body struct{ Message struct{ Seq int } }
		}
		if err := json.Unmarshal([]byte(strings.TrimPrefix(e, "update ")), &up); err != nil || up.Body.Message.Seq != i+1 {
			t.Fatalf("event %d is %s", i, e)
		}
	}
}

// Any sequence of batches leaves what a simple model says.
func TestMessagesAgainstModel(t *testing.T) {
	u := newBench(t).signIn("alice")
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		path := "/v3/sessions/" + u.session(fmt.Sprint("tag ", n)) + "/messages"
		var model []string
		for range rapid.IntRange(1, 6).Draw(t, "batches") {
			ids := rapid.SliceOfN(rapid.StringMatching(`[a-h]`), 1, 8).Draw(t, "ids")
			for _, id := range ids {
				if !slices.Contains(model, id) {
					model = append(model, id)
				}
			}
			want := ""
			for i, id := range model {
				if slices.Contains(ids, id) {
					want += fmt.Sprintf("%d:%s ", i+1, id)
				}
			}
			if got := rows(u.ok("POST", path, batch(ids...))); got != want {
				t.Fatalf("batch %v: got %s, want %s", ids, got, want)
			}
		}
		after := rapid.IntRange(0, len(model)).Draw(t, "after")
		want := ""
		for i, id := range model[after:] {
			want += fmt.Sprintf("%d:%s ", after+i+1, id)
		}
		if got := rows(u.ok("GET", fmt.Sprintf("%s?after_seq=%d", path, after), nil)); got != want {
			t.Fatalf("after %d: got %s, want %s", after, got, want)
		}
	})
}

package relay

import (
	"fmt"
	"testing"
	"time"
)

func TestSessionsAreFoundByTag(t *testing.T) {
	u := newBench(t).signIn("alice")
	first := u.ok("POST", "/v1/sessions", object{"tag": "t", "metadata": "m1", "agentState": "ignored", "dataEncryptionKey": "a2V5"})["session"].(object)
	delete(first, "id")
	want := `{"active":true,"activeAt":1800000000000,"agentState":null,"agentStateVersion":0,"createdAt":1800000000000,` +
		`"dataEncryptionKey":"a2V5","lastMessage":null,"metadata":"m1","metadataVersion":0,"seq":0,"updatedAt":1800000000000}`
	if got := compact(first); got != want {
		t.Errorf("created\n%s\nwant\n%s", got, want)
	}
	u.clock.move(time.Second)
	second := u.ok("POST", "/v1/sessions", object{"tag": "t", "metadata": "m2", "dataEncryptionKey": "b3RoZXI="})["session"].(object)
	if second["metadata"] != "m1" || second["dataEncryptionKey"] != "a2V5" || second["metadataVersion"] != 0.0 {
		t.Errorf("the stored row changed: %v", second)
	}
	legacy := u.ok("POST", "/v1/sessions", object{"tag": "l", "metadata": "m", "dataEncryptionKey": nil})["session"].(object)
	if key, there := legacy["dataEncryptionKey"]; key != nil || !there {
		t.Errorf("legacy session has key %v", key)
	}
}

func TestDeletedSession(t *testing.T) {
	b := newBench(t)
	u, bob := b.signIn("alice"), b.signIn("bob")
	id := u.session("t")
	messages := "/v3/sessions/" + id + "/messages"
	u.ok("POST", messages, batch("a"))
	u.connect(nil).call("usage-report", object{"key": "k", "sessionId": id, "tokens": object{"total": 1}, "cost": object{"total": 1}})
	bob.fails(404, "DELETE", "/v1/sessions/"+id, nil)
	l := u.connect(nil)
	if body := u.ok("DELETE", "/v1/sessions/"+id, nil); body["success"] != true {
		t.Errorf("got %v", body)
	}
	if got := l.hears(); !contains(got, `"t":"delete-session"`, `"sid":"`+id+`"`) {
		t.Errorf("heard %s", got)
	}
	if body := u.fails(404, "POST", messages, batch("b")); body["error"] != "Session not found" {
		t.Errorf("got %v", body)
	}
	u.fails(404, "GET", messages, nil)
	u.fails(404, "DELETE", "/v1/sessions/"+id, nil)
	u.fails(404, "POST", "/v1/sessions/"+id+"/archive", object{})
	next := u.session("t")
	if next == id {
		t.Error("the tag brought the deleted session back")
	}
	if got := rows(u.ok("POST", "/v3/sessions/"+next+"/messages", batch("a"))); got != "1:a " {
		t.Errorf("the new session begins with %s", got)
	}
	if s, err := u.relay.Stats(); err != nil || s.Sessions != 1 || s.Messages != 1 {
		t.Errorf("stats %+v, %v", s, err)
	}
}

func TestArchivedSessionTakesMessages(t *testing.T) {
	u := newBench(t).signIn("alice")
	id := u.session("t")
	l := u.connect(nil)
	u.ok("POST", "/v1/sessions/"+id+"/archive", object{})
	if got, want := l.hears(), `ephemeral {"type":"activity","id":"`+id+`","active":false,"activeAt":1800000000000,"thinking":false}`; got != want {
		t.Errorf("heard %s, want %s", got, want)
	}
	u.ok("POST", "/v3/sessions/"+id+"/messages", batch("a"))
	list := u.ok("GET", "/v1/sessions", nil)["sessions"].([]any)
	if len(list) != 1 || list[0].(object)["active"] != false {
		t.Errorf("listed as %v", list)
	}
	if list := u.ok("GET", "/v2/sessions/active", nil)["sessions"].([]any); len(list) != 0 {
		t.Errorf("active: %v", list)
	}
}

func TestLists(t *testing.T) {
	b := newBench(t)
	u := b.signIn("alice")
	b.signIn("bob").session("not alice's")
	var ids []string
	for i := range 160 {
		u.clock.move(time.Millisecond)
		ids = append(ids, u.session(fmt.Sprint("tag ", i)))
	}
	u.clock.move(time.Second)
	u.ok("POST", "/v3/sessions/"+ids[20]+"/messages", batch("a"))

	list := u.ok("GET", "/v1/sessions", nil)["sessions"].([]any)
	if len(list) != 150 || list[0].(object)["id"] != ids[20] || list[1].(object)["id"] != ids[159] {
		t.Errorf("v1 lists %d, first %v", len(list), list[0])
	}
	var paged []string
	path := "/v2/sessions?limit=50"
	for pages := 0; pages < 10; pages++ {
		body := u.ok("GET", path, nil)
		for _, s := range body["sessions"].([]any) {
			paged = append(paged, s.(object)["id"].(string))
		}
		if body["hasNext"] != true {
			if body["nextCursor"] != nil {
				t.Errorf("last page has cursor %v", body["nextCursor"])
			}
			break
		}
		path = "/v2/sessions?limit=50&cursor=" + body["nextCursor"].(string)
	}
	if len(paged) != 160 || paged[0] != ids[159] || paged[159] != ids[0] {
		t.Errorf("v2 pages: %d sessions", len(paged))
	}
	if n := len(u.ok("GET", "/v2/sessions?changedSince=1800000000500", nil)["sessions"].([]any)); n != 1 {
		t.Errorf("changedSince: %d sessions", n)
	}
	if n := len(u.ok("GET", "/v2/sessions/active?limit=10", nil)["sessions"].([]any)); n != 10 {
		t.Errorf("active: %d sessions", n)
	}
	for _, path := range []string{
		"/v2/sessions?limit=201", "/v2/sessions?limit=0", "/v2/sessions?limit=x", "/v2/sessions?cursor=x",
		"/v2/sessions?changedSince=0", "/v2/sessions/active?limit=501",
	} {
		u.fails(400, "GET", path, nil)
	}
}

func TestMachines(t *testing.T) {
	b := newBench(t)
	u, bob := b.signIn("alice"), b.signIn("bob")
	l := u.connect(nil)
	m := u.ok("POST", "/v1/machines", object{"id": "m1", "metadata": "meta", "daemonState": "state", "dataEncryptionKey": "a2V5"})["machine"].(object)
	want := `{"active":false,"activeAt":1800000000000,"createdAt":1800000000000,"daemonState":"state","daemonStateVersion":1,` +
		`"dataEncryptionKey":"a2V5","id":"m1","metadata":"meta","metadataVersion":1,"seq":0,"updatedAt":1800000000000}`
	if got := compact(m); got != want {
		t.Errorf("created\n%s\nwant\n%s", got, want)
	}
	if got := l.hears(); !contains(got, `"t":"new-machine","machineId":"m1"`, `"dataEncryptionKey":"a2V5"`) || contains(got, `"id":"m1"`) {
		t.Errorf("heard %s", got)
	}
	if got := l.hears(); !contains(got, `"t":"update-machine","machineId":"m1","metadata":{"value":"meta","version":1}}`) {
		t.Errorf("heard %s", got)
	}
	m = u.ok("POST", "/v1/machines", object{"id": "m1", "metadata": "other"})["machine"].(object)
	if got := compact(m); got != want {
		t.Errorf("created again\n%s\nwant\n%s", got, want)
	}
	bob.fails(500, "POST", "/v1/machines", object{"id": "m1", "metadata": "bob's"})
	bob.fails(404, "GET", "/v1/machines/m1", nil)
	bob.fails(404, "DELETE", "/v1/machines/m1", nil)
	u.fails(400, "POST", "/v1/machines", object{"id": "", "metadata": "x"})
	u.fails(400, "POST", "/v1/machines", object{"id": "x"})
	if got := compact(u.ok("GET", "/v1/machines/m1", nil)["machine"]); got != want {
		t.Errorf("got %s", got)
	}
	if got := compact(u.ok("GET", "/v1/machines", nil)[""]); got != "["+want+"]" {
		t.Errorf("listed as %s", got)
	}
	if got := compact(bob.ok("GET", "/v1/machines", nil)[""]); got != "[]" {
		t.Errorf("bob's: %s", got)
	}
	u.ok("DELETE", "/v1/machines/m1", nil)
	u.fails(404, "GET", "/v1/machines/m1", nil)
	bob.ok("POST", "/v1/machines", object{"id": "m1", "metadata": "bob's"})
}

package nodetest

import (
	"encoding/json"
	"testing"
)

func TestRunPassesInputAndOutput(t *testing.T) {
	out := Run(t, "versions.mjs", []byte("zod happy"))
	var got struct {
		Stdin    string
		Versions map[string]string
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	if got.Stdin != "zod happy" {
		t.Errorf("the script read %q", got.Stdin)
	}
	for name, want := range map[string]string{
		"@slopus/happy-wire": "0.1.0", "socket.io": "4.8.1", "socket.io-client": "4.8.3", "tweetnacl": "1.0.3",
	} {
		if got.Versions[name] != want {
			t.Errorf("%s is installed as %q, the tests were written against %s", name, got.Versions[name], want)
		}
	}
}

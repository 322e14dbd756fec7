package crypto

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/happyd/happyd/internal/nodetest"
)

// What Go seals, tweetnacl and node:crypto open, and the other way round.
func TestInteropWithJavaScript(t *testing.T) {
	nodetest.Dir(t)
	l := login(t)
	sessions := map[string]SessionKeys{}
	for name, a := range map[string]*Account{"legacy": l.legacy, "datakey": l.dataKey} {
		keys, err := a.Session("some tag")
		if err != nil {
			t.Fatal(err)
		}
		sessions[name] = keys
	}
	machine, machineWrapped, err := l.dataKey.Machine()
	if err != nil {
		t.Fatal(err)
	}

	type message struct {
		Variant string `json:"variant"`
		Key     []byte `json:"key,omitempty"`
		Wrapped string `json:"wrapped,omitempty"`
		Sealed  []byte `json:"sealed"`
		Blob    bool   `json:"blob"`
	}
	var messages []message
	var plains [][]byte
	var openers []Sealer
	add := func(s Sealer, plain []byte, m message) {
		t.Helper()
		sealed, err := s.Seal(plain)
		if err != nil {
			t.Fatal(err)
		}
		m.Sealed = sealed
		messages, plains, openers = append(messages, m), append(plains, plain), append(openers, s)
	}
	for _, plain := range []string{
		"x", `{"t":"text","text":"grüße \u2028 <&> 🦊"}`, "", strings.Repeat("long ", 40000), string([]byte{0, 255, 128}),
	} {
		for _, blob := range []bool{false, true} {
			pick := func(keys SessionKeys) Sealer {
				if blob {
					return keys.Blob
				}
				return keys.Sealer
			}
			add(pick(sessions["legacy"]), []byte(plain), message{Variant: "legacy", Key: l.secret, Blob: blob})
			add(pick(sessions["datakey"]), []byte(plain), message{Variant: "datakey", Wrapped: sessions["datakey"].Wrapped, Blob: blob})
		}
	}
	add(machine, []byte(`{"host":"laptop"}`), message{Variant: "datakey", Wrapped: machineWrapped})
	add(machine, []byte(`{"host":"laptop"}`), message{Variant: "datakey", Key: l.machineKey})

	terminalPublic, terminalSecret, err := NewTerminalKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	grant, err := SealPairing(terminalPublic, PairingResult{ContentPublicKey: l.contentPublic}, nil)
	if err != nil {
		t.Fatal(err)
	}
	challenge := []byte("thirty-two bytes of a challenge!")
	public, signature := AuthChallenge(l.secret, challenge)

	in, err := json.Marshal(map[string]any{
		"secret":   l.secret,
		"messages": messages,
		"auth":     map[string][]byte{"public": public, "challenge": challenge, "signature": signature},
		"pairing":  map[string][]byte{"terminalSecret": terminalSecret, "terminalPublic": terminalPublic, "response": grant},
	})
	if err != nil {
		t.Fatal(err)
	}
	var out struct {
		Messages                     []struct{ Plain, Sealed []byte }
		ContentPublic, PairingOpened []byte
		PairingV1, PairingV1Secret   []byte
		AuthValid                    bool
	}
	if err := json.Unmarshal(nodetest.Run(t, "crypto-interop.mjs", in), &out); err != nil {
		t.Fatal(err)
	}

	if len(out.Messages) != len(messages) {
		t.Fatalf("%d of %d messages came back", len(out.Messages), len(messages))
	}
	for i, m := range out.Messages {
		if !bytes.Equal(m.Plain, plains[i]) {
			t.Errorf("message %d (%s, blob %v): JavaScript read %d bytes, want %d", i, messages[i].Variant, messages[i].Blob, len(m.Plain), len(plains[i]))
		}
		if plain, err := openers[i].Open(m.Sealed); err != nil || !bytes.Equal(plain, plains[i]) {
			t.Errorf("message %d (%s, blob %v): Go read %d bytes of JavaScript's, %v", i, messages[i].Variant, messages[i].Blob, len(plain), err)
		}
	}
	if !bytes.Equal(out.ContentPublic, l.contentPublic) {
		t.Error("content keys differ")
	}
	if !out.AuthValid {
		t.Error("the login signature does not verify")
	}
	if want := append([]byte{0}, l.contentPublic...); !bytes.Equal(out.PairingOpened, want) {
		t.Errorf("JavaScript opened the pairing as %s", base64.StdEncoding.EncodeToString(out.PairingOpened))
	}
	result, err := OpenPairing(terminalSecret, out.PairingV1)
	if err != nil || !bytes.Equal(result.Secret, out.PairingV1Secret) {
		t.Errorf("JavaScript's pairing answer: %v, %v", result, err)
	}
}

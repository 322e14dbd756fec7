package crypto

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// vectors are known answers: testdata/vectors.json was computed by
// test/node/crypto-vectors.mjs; a file beside the repository, where there is
// one, comes from the real clients.
type vectors struct {
	Secret             b64             `json:"secret_b64"`
	DataKey            b64             `json:"data_key_b64"`
	SignPublic         hexed           `json:"sign_public_hex"`
	Challenge          b64             `json:"challenge_b64"`
	ChallengeSignature b64             `json:"challenge_signature_b64"`
	ContentSeed        hexed           `json:"content_seed_hex"`
	ContentSecret      hexed           `json:"content_secret_hex"`
	ContentPublic      hexed           `json:"content_public_hex"`
	AnalyticsID        hexed           `json:"analytics_id"`
	BlobKeyLegacy      hexed           `json:"blob_key_legacy_hex"`
	BlobKeyDataKey     hexed           `json:"blob_key_datakey_hex"`
	TerminalSecret     hexed           `json:"terminal_secret_hex"`
	TerminalPublic     b64             `json:"terminal_public_b64"`
	TerminalURL        string          `json:"terminal_url"`
	WebURLSuffix       string          `json:"web_url_suffix"`
	AccountLinkURL     string          `json:"account_link_url"`
	PairingV1          b64             `json:"pairing_response_v1_b64"`
	PairingV2          b64             `json:"pairing_response_v2_b64"`
	WrappedDataKey     b64             `json:"wrapped_data_key_b64"`
	Plaintext          json.RawMessage `json:"plaintext"`
	DataKeyCiphertext  b64             `json:"datakey_ciphertext_b64"`
	LegacyCiphertext   b64             `json:"legacy_ciphertext_b64"`
	BlobPlain          hexed           `json:"blob_plain_hex"`
	BlobDataKey        b64             `json:"blob_datakey_b64"`
	BlobLegacy         b64             `json:"blob_legacy_b64"`
}

type b64 []byte

func (b *b64) UnmarshalText(text []byte) (err error) {
	*b, err = base64.StdEncoding.DecodeString(string(text))
	return err
}

type hexed []byte

func (h *hexed) UnmarshalText(text []byte) (err error) {
	*h, err = hex.DecodeString(string(text))
	return err
}

func loadVectors(t *testing.T, path string) vectors {
	t.Helper()
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("skipping the known answers of the real clients: %s is not there", path)
	}
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestKnownAnswers(t *testing.T) {
	t.Run("own", func(t *testing.T) { checkVectors(t, loadVectors(t, "testdata/vectors.json")) })
	t.Run("real clients", func(t *testing.T) {
		checkVectors(t, loadVectors(t, filepath.Join("..", "..", "shared", "vectors.json")))
	})
}

func checkVectors(t *testing.T, v vectors) {
	same := func(name string, got, want []byte) {
		t.Helper()
		if len(want) == 0 || !bytes.Equal(got, want) {
			t.Errorf("%s = %x, want %x", name, got, want)
		}
	}
	must := func(b []byte, err error) []byte {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
		return b
	}

	// Keys.
	same("content seed", DeriveKey(v.Secret, "Happy EnCoder", "content"), v.ContentSeed)
	same("analytics id", DeriveKey(v.Secret, "Happy Coder", "analytics", "id")[:8], v.AnalyticsID)
	public, private, err := ContentKeys(v.Secret)
	if err != nil {
		t.Fatal(err)
	}
	same("content public key", public[:], v.ContentPublic)
	same("content private key", private[:], v.ContentSecret)
	same("legacy blob key", BlobKeyLegacy(v.Secret), v.BlobKeyLegacy)
	same("data-key blob key", BlobKeyDataKey(v.DataKey), v.BlobKeyDataKey)

	// Login.
	signPublic, signature := AuthChallenge(v.Secret, v.Challenge)
	same("sign public key", signPublic, v.SignPublic)
	same("signature", signature, v.ChallengeSignature)

	// Messages and blobs, opened, and sealed again with the nonce they have.
	plain := compact(t, v.Plaintext)
	for _, tc := range []struct {
		name          string
		create        newSealer
		key           []byte
		nonce         int
		sealed, plain []byte
	}{
		{"data-key message", NewDataKeySealer, v.DataKey, 1, v.DataKeyCiphertext, plain},
		{"legacy message", NewSecretboxSealer, v.Secret, 0, v.LegacyCiphertext, plain},
		{"data-key blob", NewSecretboxSealer, v.BlobKeyDataKey, 0, v.BlobDataKey, v.BlobPlain},
		{"legacy blob", NewSecretboxSealer, v.BlobKeyLegacy, 0, v.BlobLegacy, v.BlobPlain},
	} {
		s, err := tc.create(tc.key, bytes.NewReader(tc.sealed[tc.nonce:]))
		if err != nil {
			t.Fatal(err)
		}
		opened := must(s.Open(tc.sealed))
		same(tc.name+" opened", opened, tc.plain)
		same(tc.name+" sealed", must(s.Seal(opened)), tc.sealed)
	}

	// Wrapped key.
	same("unwrapped key", must(UnwrapKey(private[:], v.WrappedDataKey)), v.DataKey)
	if len(v.WrappedDataKey) != WrappedKeySize {
		t.Errorf("wrapped key has %d bytes, want %d", len(v.WrappedDataKey), WrappedKeySize)
	}

	// Pairing.
	same("terminal public key", must(TerminalPublicKey(v.TerminalSecret)), v.TerminalPublic)
	v1, err := OpenPairing(v.TerminalSecret, v.PairingV1)
	if err != nil || v1.ContentPublicKey != nil {
		t.Errorf("pairing v1: %v, %v", v1, err)
	}
	same("pairing v1", v1.Secret, v.Secret)
	v2, err := OpenPairing(v.TerminalSecret, v.PairingV2)
	if err != nil || v2.Secret != nil {
		t.Errorf("pairing v2: %v, %v", v2, err)
	}
	same("pairing v2", v2.ContentPublicKey, v.ContentPublic)
	for _, tc := range []struct{ got, want string }{
		{TerminalURL(v.TerminalPublic), v.TerminalURL},
		{WebURL("https://app.example/", v.TerminalPublic), "https://app.example" + v.WebURLSuffix},
		{AccountURL(v.TerminalPublic), v.AccountLinkURL},
	} {
		if tc.got != tc.want {
			t.Errorf("URL %q, want %q", tc.got, tc.want)
		}
	}
}

// compact writes the plaintext as JavaScript did: no white space, no escapes
// that JSON does not ask for.
func compact(t *testing.T, raw json.RawMessage) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

package relay

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"go.etcd.io/bbolt"
)

// issuer marks the relay's tokens.
const issuer = "happyd"

// account is a row: someone who proved to hold a key.
type account struct {
	PublicKey []byte `json:"publicKey"`
	Seq       int64  `json:"seq"` // number of the account's last update
	CreatedAt int64  `json:"createdAt"`
}

// claims are a token's content. Tokens do not expire; they end with the file
// that holds their key.
type claims struct {
	Sub string `json:"sub"`
	Iat int64  `json:"iat"`
	Nbf int64  `json:"nbf"`
	Iss string `json:"iss"`
	Jti string `json:"jti"`
}

var (
	tokenHeader = base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"EdDSA","typ":"JWT"}`))
	errToken    = errors.New("invalid token")
)

// postAuth gives a token to whoever signs a challenge of their own choice, and
// makes an account for a key that is new.
func (r *Relay) postAuth(w http.ResponseWriter, req *http.Request) {
	req.Body = http.MaxBytesReader(w, req.Body, 64<<10)
	body, err := r.authenticate(req)
	r.finish(w, req, body, err)
}

func (r *Relay) authenticate(req *http.Request) (any, error) {
	var in struct{ PublicKey, Challenge, Signature *string }
	if err := readBody(req, &in); err != nil {
		return nil, err
	}
	if in.PublicKey == nil || in.Challenge == nil || in.Signature == nil {
		return nil, badRequest("body publicKey, challenge and signature are required")
	}
	key, err1 := base64.StdEncoding.DecodeString(*in.PublicKey)
	challenge, err2 := base64.StdEncoding.DecodeString(*in.Challenge)
	signature, err3 := base64.StdEncoding.DecodeString(*in.Signature)
	if errors.Join(err1, err2, err3) != nil || len(key) != ed25519.PublicKeySize || !ed25519.Verify(key, challenge, signature) {
		return nil, refuse(http.StatusUnauthorized, "Invalid signature")
	}
	var id string
	err := r.db.update(func(tx *bbolt.Tx) (func(), error) {
		if known := tx.Bucket(bucketKeys).Get(key); known != nil {
			id = string(known)
			return nil, nil
		}
		id = newID(r.ms())
		return nil, errors.Join(
			tx.Bucket(bucketKeys).Put(key, []byte(id)),
			save(tx, bucketAccounts, id, account{PublicKey: key, CreatedAt: r.ms()}),
		)
	})
	if err != nil {
		return nil, err
	}
	token, err := r.sign(id)
	if err != nil {
		return nil, err
	}
	return map[string]any{"success": true, "token": token}, nil
}

// sign makes a token for an account.
func (r *Relay) sign(id string) (string, error) {
	now := r.now().Unix()
	c, err := json.Marshal(claims{Sub: id, Iat: now, Nbf: now, Iss: issuer, Jti: rand.Text()})
	if err != nil {
		return "", fmt.Errorf("encoding a token: %w", err)
	}
	signed := tokenHeader + "." + base64.RawURLEncoding.EncodeToString(c)
	return signed + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(r.key, []byte(signed))), nil
}

// verify returns the account of a token of ours.
func (r *Relay) verify(token string) (string, error) {
	i := strings.LastIndexByte(token, '.')
	if i < 0 {
		return "", errToken
	}
	signature, err := base64.RawURLEncoding.DecodeString(token[i+1:])
	if err != nil || !ed25519.Verify(r.key.Public().(ed25519.PublicKey), []byte(token[:i]), signature) {
		return "", errToken
	}
	// Only what we signed gets here, and we sign nothing but tokens.
	payload, ok := strings.CutPrefix(token[:i], tokenHeader+".")
	if !ok {
		return "", errToken
	}
	var c claims
	b, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil || json.Unmarshal(b, &c) != nil || c.Iss != issuer || c.Sub == "" {
		return "", errToken
	}
	return c.Sub, nil
}

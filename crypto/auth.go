package crypto

import "crypto/ed25519"

// SignKey is the key that an account logs in with, from the account's secret.
// It is nil when the secret is not 32 bytes long.
func SignKey(secret []byte) ed25519.PrivateKey {
	if len(secret) != KeySize {
		return nil
	}
	return ed25519.NewKeyFromSeed(secret)
}

// AuthChallenge answers a login challenge: the account's public key and a
// detached signature over the challenge, which the server takes as base64. Both
// are nil when the secret is not 32 bytes long.
func AuthChallenge(secret, challenge []byte) (public, signature []byte) {
	key := SignKey(secret)
	if key == nil {
		return nil, nil
	}
	defer clear(key)
	return append([]byte(nil), key[KeySize:]...), ed25519.Sign(key, challenge)
}

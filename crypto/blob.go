package crypto

import "io"

// BlobKeyDataKey is the key of a session's attachments, from the session's key.
func BlobKeyDataKey(dataKey []byte) []byte { return DeriveKey(dataKey, "Happy Blobs", "session") }

// BlobKeyLegacy is the key of all attachments of a legacy login, from the
// account's secret.
func BlobKeyLegacy(secret []byte) []byte { return DeriveKey(secret, "Happy Blobs", "master") }

// SealBlob encrypts an attachment: nonce(24) | box. A nil random means
// crypto/rand. SessionKeys.Blob does the same with the session's key.
func SealBlob(blobKey, plain []byte, random io.Reader) ([]byte, error) {
	s, err := NewSecretboxSealer(blobKey, random)
	if err != nil {
		return nil, err
	}
	return s.Seal(plain)
}

// OpenBlob decrypts an attachment.
func OpenBlob(blobKey, sealed []byte) ([]byte, error) {
	s, err := NewSecretboxSealer(blobKey, nil)
	if err != nil {
		return nil, err
	}
	return s.Open(sealed)
}

package store

import (
	"bytes"
	"testing"
)

func FuzzDecodeMessage(f *testing.F) {
	f.Add(encodeMessage(msg("id", "body")))
	f.Add([]byte{messageVersion, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, v []byte) {
		m, err := decodeMessage(v)
		if err != nil {
			return
		}
		again, err := decodeMessage(encodeMessage(m))
		if err != nil || again.LocalID != m.LocalID || again.Turn != m.Turn || again.Kind != m.Kind || !bytes.Equal(again.Sealed, m.Sealed) {
			t.Errorf("%+v became %+v, %v", m, again, err)
		}
	})
}

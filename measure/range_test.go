package measure

import (
	"testing"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// otherRange is a valid encoding of a histogram that is not one of ours.
func otherRange(t *testing.T) []byte {
	t.Helper()
	b, err := hdrhistogram.New(1, 1000, 2).Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

package fakehappy

import (
	"net/http"
	"sync"
	"time"
)

// Fault is what goes wrong with one request. The zero value is nothing.
type Fault struct {
	// Delay comes first, before anything is stored.
	Delay time.Duration
	// Drop closes the connection before anything is stored.
	Drop bool
	// Status answers with this code, and stores nothing.
	Status int
	// RetryAfter is the header of that name.
	RetryAfter string
	// Body and ContentType replace the JSON of an answer with a Status.
	Body, ContentType string
	// DropAnswer closes the connection after everything was stored.
	DropAnswer bool
}

// SetFault makes fn decide about every HTTP request from now on; nil ends that.
// It may be called at the same time by several requests.
func (s *Server) SetFault(fn func(Request) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fn
}

// IsMessages says whether r posts messages.
func (r Request) IsMessages() bool { return r.Method == http.MethodPost && r.Session != "" }

// Sequence applies faults, in their order, to the requests that match, and
// none after that.
func Sequence(match func(Request) bool, faults ...Fault) func(Request) Fault {
	var mu sync.Mutex
	return func(r Request) Fault {
		mu.Lock()
		defer mu.Unlock()
		if len(faults) == 0 || !match(r) {
			return Fault{}
		}
		f := faults[0]
		faults = faults[1:]
		return f
	}
}

// TooLarge answers 413 to messages in bodies of more than n bytes.
func TooLarge(n int) func(Request) Fault {
	return func(r Request) Fault {
		if r.IsMessages() && len(r.Body) > n {
			return Fault{Status: http.StatusRequestEntityTooLarge, Body: "<html>too large</html>", ContentType: "text/html"}
		}
		return Fault{}
	}
}

package relay

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net"
	"net/http"
	"strconv"
	"strings"

	"go.etcd.io/bbolt"
)

// bodyLimit is the largest request body, in bytes, as the real server has it.
const bodyLimit = 100 << 20

// answer is an HTTP answer that a handler gives instead of its result.
type answer struct {
	status int
	body   any
}

// Error implements error.
func (a *answer) Error() string { return fmt.Sprintf("answered with status %d", a.status) }

func refuse(status int, message string) *answer {
	return &answer{status, map[string]string{"error": message}}
}

// badRequest is the answer to input that does not fit the schema.
func badRequest(format string, args ...any) *answer {
	return &answer{http.StatusBadRequest, map[string]any{
		"error": "Error", "message": fmt.Sprintf(format, args...), "statusCode": http.StatusBadRequest,
	}}
}

// local lets in only requests for the relay's own address. A browser that was
// tricked into resolving a foreign name to 127.0.0.1 sends that name as Host.
func (r *Relay) local(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		addr, _ := req.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
		if addr == nil || !addr.IP.IsLoopback() || !ownHost(req.Host, addr.Port) {
			r.log.Warn("relay: refused a request for another host", "path", logPath(req))
			reply(w, http.StatusForbidden, map[string]string{"error": "Forbidden"})
			return
		}
		next.ServeHTTP(w, req)
	})
}

// ownHost reports whether a Host header names this machine and port.
func ownHost(host string, port int) bool {
	name, p, err := net.SplitHostPort(host)
	if err != nil { // no port: HTTP's own
		name, p = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"), "80"
	}
	return p == strconv.Itoa(port) && (name == "127.0.0.1" || name == "::1" || strings.EqualFold(name, "localhost"))
}

// account wraps a handler that needs a bearer token; the handler gets the id of
// the token's account and returns the body of a 200, or an error.
func (r *Relay) account(handle func(account string, req *http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		token, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
		if !ok {
			reply(w, http.StatusUnauthorized, map[string]string{"error": "Missing authorization header"})
			return
		}
		account, err := r.verify(token)
		if err != nil {
			reply(w, http.StatusUnauthorized, map[string]string{"error": "Invalid token"})
			return
		}
		req.Body = http.MaxBytesReader(w, req.Body, r.maxBody)
		body, err := handle(account, req)
		r.finish(w, req, body, err)
	})
}

// finish sends a handler's result.
func (r *Relay) finish(w http.ResponseWriter, req *http.Request, body any, err error) {
	var a *answer
	switch {
	case err == nil:
		reply(w, http.StatusOK, body)
	case errors.As(err, &a):
		reply(w, a.status, a.body)
	default:
		r.log.Error("relay: request failed", "method", req.Method, "path", logPath(req), "err", err)
		reply(w, http.StatusInternalServerError, map[string]any{
			"error": "Internal Server Error", "message": "An unexpected error occurred", "statusCode": http.StatusInternalServerError,
		})
	}
}

func (r *Relay) unknown(w http.ResponseWriter, req *http.Request) {
	path := logPath(req)
	r.log.Info("relay: unknown path", "method", req.Method, "path", path)
	reply(w, http.StatusNotFound, map[string]any{
		"error": "Not found", "path": path, "method": req.Method,
	})
}

// logPath is the request's path, without its query, cut to a sane length.
func logPath(req *http.Request) string {
	const most = 200
	if p := req.URL.EscapedPath(); len(p) > most {
		return p[:most] + "..."
	}
	return req.URL.EscapedPath()
}

func reply(w http.ResponseWriter, status int, body any) {
	b, err := json.Marshal(body)
	if err != nil { // bodies are made of strings and numbers
		http.Error(w, "{}", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	w.Write(b) // a client that went away has its own troubles
}

// readBody decodes a JSON request body.
func readBody(req *http.Request, into any) error {
	kind, _, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		// Insisting on it keeps simple cross-site requests of browsers out, too.
		return refuse(http.StatusUnsupportedMediaType, "Unsupported Media Type")
	}
	dec := json.NewDecoder(req.Body)
	err = dec.Decode(into)
	var tooLarge *http.MaxBytesError
	var wrongType *json.UnmarshalTypeError
	switch {
	case errors.As(err, &tooLarge):
		return refuse(http.StatusRequestEntityTooLarge, "Request body is too large")
	case errors.As(err, &wrongType):
		return badRequest("body/%s Invalid input: got %s", strings.ReplaceAll(wrongType.Field, ".", "/"), wrongType.Value)
	case err != nil:
		return badRequest("Body is not valid JSON")
	case dec.More():
		return badRequest("Body is not valid JSON")
	}
	return nil
}

// queryInt reads an optional whole number from the query.
func queryInt(req *http.Request, name string, least, most, otherwise int64) (int64, error) {
	q := req.URL.Query()
	if !q.Has(name) {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(q.Get(name), 10, 64)
	switch {
	case err != nil:
		return 0, badRequest("querystring/%s Invalid input: expected number", name)
	case n < least:
		return 0, badRequest("querystring/%s Too small: expected number to be >=%d", name, least)
	case n > most:
		return 0, badRequest("querystring/%s Too big: expected number to be <=%d", name, most)
	}
	return n, nil
}

// read runs fn on a snapshot and returns what it found.
func read[T any](r *Relay, fn func(tx *bbolt.Tx) (T, error)) (found T, err error) {
	err = r.db.view(func(tx *bbolt.Tx) error {
		found, err = fn(tx)
		return err
	})
	return found, err
}

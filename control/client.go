package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// NotRunningError says that no daemon answers for a state directory.
type NotRunningError struct{ StateDir string }

func (e *NotRunningError) Error() string {
	return fmt.Sprintf("no happyd daemon is running with the state directory %s; start one with `happyd run`", e.StateDir)
}

// Client talks to the daemon of one state directory. It is safe for concurrent
// use.
type Client struct {
	stateDir string
	http     *http.Client
}

// Dial finds the daemon of a state directory. If none is running, the error is
// a [*NotRunningError]. Close the client when done.
func Dial(stateDir string) (*Client, error) {
	path := socketPath(stateDir)
	if path == "" {
		return nil, &NotRunningError{StateDir: stateDir}
	}
	dial := func(ctx context.Context) (net.Conn, error) {
		d := net.Dialer{Timeout: 5 * time.Second}
		return d.DialContext(ctx, "unix", path)
	}
	// Tried once now: every command wants to know before it does anything.
	conn, err := dial(context.Background())
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("the daemon belongs to another user: %w", err)
	case err != nil:
		return nil, &NotRunningError{StateDir: stateDir}
	}
	conn.Close()
	return &Client{stateDir: stateDir, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
	}}}, nil
}

// Close releases the client's connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Status asks for the status document.
func (c *Client) Status(ctx context.Context) (StatusDoc, error) {
	resp, err := c.do(ctx, http.MethodGet, "/status", nil)
	if err != nil {
		return StatusDoc{}, fmt.Errorf("asking for the status: %w", err)
	}
	defer resp.Body.Close()
	var doc StatusDoc
	if err := json.NewDecoder(resp.Body).Decode(&doc); err != nil {
		return StatusDoc{}, fmt.Errorf("reading the status: %w", err)
	}
	return doc, nil
}

// TailOptions choose what Tail shows.
type TailOptions struct {
	Last    int    // how many lines of the past to begin with
	Session string // only this session; "" means all
}

// Tail calls fn for every line, with its text as it came, until ctx ends, fn
// returns an error (which Tail returns as it is), or the daemon goes away
// (io.EOF). A line that this version cannot read has a zero TailLine.
func (c *Client) Tail(ctx context.Context, opts TailOptions, fn func(TailLine, []byte) error) error {
	query := url.Values{"n": {strconv.Itoa(opts.Last)}}
	if opts.Session != "" {
		query.Set("session", opts.Session)
	}
	resp, err := c.do(ctx, http.MethodGet, "/tail?"+query.Encode(), nil)
	if err != nil {
		return fmt.Errorf("following the daemon: %w", err)
	}
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	for {
		data, err := in.ReadBytes('\n')
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return io.EOF // whatever cut the stream: the daemon is gone
		}
		var l TailLine
		if json.Unmarshal(data, &l) != nil {
			l = TailLine{} // a newer daemon may know more events
		}
		if err := fn(l, data); err != nil {
			return err
		}
	}
}

// Ingest streams r to the daemon as a live stream of a provider and returns
// when the daemon has taken it all.
func (c *Client) Ingest(ctx context.Context, provider string, r io.Reader) error {
	resp, err := c.do(ctx, http.MethodPost, "/ingest/"+url.PathEscape(provider), io.NopCloser(r))
	if err != nil {
		return fmt.Errorf("handing a stream to the daemon: %w", err)
	}
	resp.Body.Close()
	return nil
}

func (c *Client) do(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://happyd"+path, body)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var ue *url.Error // names a URL that means nothing to a user
		if errors.As(err, &ue) {
			err = ue.Err
		}
		return nil, err
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	var f failure
	if json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&f) != nil || f.Error == "" {
		return nil, fmt.Errorf("the daemon answered %s", resp.Status)
	}
	return nil, fmt.Errorf("the daemon says: %s", f.Error)
}

package uplink

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// request passes the gate, sends one request by fn, and tells the gate what the
// answer says about the server. The error is nil; a *statusError about this one
// request, for the caller to deal with; errRetry when the server as a whole is
// the matter; or ctx's.
func (u *Uplink) request(ctx context.Context, fn func(ctx context.Context, token string) error) error {
	renewed := false
	for {
		if err := u.gate.enter(ctx); err != nil {
			return err
		}
		token, epoch := u.credentials()
		if token == "" {
			if err := u.reloadToken(); err != nil {
				u.gate.refuse(err.Error())
				return errRetry
			}
			token, epoch = u.credentials()
		}
		err := fn(epoch, token)
		var se *statusError
		var nh *errNotHappy
		switch {
		case err == nil:
			u.gate.pass()
			return nil
		case errors.As(err, &se):
			if se.code == http.StatusUnauthorized && !renewed {
				if rerr := u.reloadToken(); rerr != nil {
					u.gate.refuse(fmt.Sprintf("%v; %v", se, rerr))
					return errRetry
				}
				if u.currentToken() != token { // the file had a newer one
					renewed = true
					u.gate.leave()
					continue
				}
			}
			return u.judge(se)
		case errors.As(err, &nh):
			u.gate.wrong(nh.why)
			return errRetry
		case context.Cause(epoch) == errNetworkChanged:
			u.gate.leave()
			return errRetry
		case epoch.Err() != nil: // the end of Run
			u.gate.leave()
			return epoch.Err()
		default:
			u.gate.fail(shorten(err.Error(), 200))
			return errRetry
		}
	}
}

// judge sorts the status codes: those about all of us go to the gate.
func (u *Uplink) judge(se *statusError) error {
	switch {
	case se.code == http.StatusUnauthorized:
		u.gate.refuse(se.Error())
	case se.code == http.StatusTooManyRequests, se.code == http.StatusServiceUnavailable && se.after > 0:
		u.gate.rate(se.after)
	case se.code == http.StatusInternalServerError:
		// Happy answers this for one impossible batch as well as for a database
		// that is away. The caller slows down its session.
		u.gate.soft(se.Error())
		return se
	case se.code > http.StatusInternalServerError:
		u.gate.fail(se.Error())
		return se // a batch that is too slow for a proxy looks like this, too
	case se.code == http.StatusRequestTimeout, se.code == http.StatusTooEarly:
		u.gate.fail(se.Error())
	case se.code == http.StatusRequestEntityTooLarge,
		se.code == http.StatusBadRequest && se.json,
		se.code == http.StatusUnprocessableEntity && se.json,
		se.code == http.StatusNotFound && se.json && !strings.HasPrefix(se.text, "Route "):
		u.gate.pass()
		return se
	default: // redirects, forbidden, a 404 of something else
		u.gate.wrong(se.Error())
	}
	return errRetry
}

// credentials returns the token and the context for the next request.
func (u *Uplink) credentials() (string, context.Context) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.token, u.epoch
}

func (u *Uplink) currentToken() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.token
}

// reloadToken reads the token again. When that fails the one in use stays: the
// file may be in the middle of being replaced.
func (u *Uplink) reloadToken() error {
	t, err := u.o.Token()
	if err == nil && t == "" {
		err = errors.New("there is no token")
	}
	if err != nil {
		return fmt.Errorf("reading the credentials: %w", err)
	}
	u.mu.Lock()
	u.token = t
	u.mu.Unlock()
	return nil
}

// renewToken reads the token again and lifts the wait if there is a new one.
func (u *Uplink) renewToken() {
	before := u.currentToken()
	if err := u.reloadToken(); err != nil || u.currentToken() == before {
		return
	}
	u.log.Info("the credentials have changed, trying them")
	u.gate.renew()
	u.sock.redial()
}

// accountOf is the server's id of the account a token belongs to, empty when
// the token does not say. It is read, not verified: the server does that.
func accountOf(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	b, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct {
		Sub string `json:"sub"`
	}
	if json.Unmarshal(b, &claims) != nil {
		return ""
	}
	return claims.Sub
}

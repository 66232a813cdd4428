package access

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/oauth2"
)

// People sign in to the console by the code flow with PKCE (RFC 6749, RFC 7636). The page makes the secrets
// of the flow and sends the reader to the issuer; the bridge changes the code for an ID token, so that
// the issuer need not let pages of other sites read its answers, and may ask for a client's secret. The page
// then calls with the ID token, as everybody with a JWT. The bridge keeps nothing of it.

const (
	// signInsPerSecond bounds what anybody can have the bridge ask of an issuer.
	signInsPerSecond = 20
	signInTimeout    = 5 * time.Second
	// openID is the scope without which there is no ID token.
	openID = "openid"
)

// SignIn is how a page lets its reader sign in at an issuer.
type SignIn struct {
	// Name is that of the issuer in the configuration, Issuer its URL.
	Name   string `json:"name"`
	Issuer string `json:"issuer"`
	// Authorization and EndSession are where to send the reader; the latter may be empty.
	Authorization string `json:"authorization_endpoint"`
	EndSession    string `json:"end_session_endpoint,omitempty"`
	ClientID      string `json:"client_id"`
	Scope         string `json:"scope"`
}

// Grant is what the issuer has given to the page: a code, with what was asked for it, or a refresh token.
type Grant struct {
	Code        string `json:"code,omitempty"`
	Verifier    string `json:"code_verifier,omitempty"`
	RedirectURI string `json:"redirect_uri,omitempty"`
	Refresh     string `json:"refresh_token,omitempty"`
}

// Signed is what a grant is changed for. Refresh is empty where the issuer gives none.
type Signed struct {
	IDToken string  `json:"id_token"`
	Refresh string  `json:"refresh_token,omitempty"`
	Lasts   float64 `json:"expires_in_s"`
}

// checkSignIn returns what is wrong with the keys about signing in.
func (i Issuer) checkSignIn() map[string]error {
	wrong := map[string]error{}
	switch {
	case i.ClientID == "" && i.SecretFile != "":
		wrong["client_secret_file"] = errors.New("needs client_id, too")
	case i.ClientID == "" && len(i.Scopes) > 0:
		wrong["scopes"] = errors.New("needs client_id, too")
	case i.ClientID == "":
	case !slices.Contains(i.Audiences, i.ClientID):
		wrong["client_id"] = fmt.Errorf("%q must be one of audiences, because ID tokens are meant for the client", i.ClientID)
	case i.JWKSURL != "" || i.JWKSFile != "":
		wrong["client_id"] = errors.New("needs discovery, so jwks_url and jwks_file must not be given")
	case len(i.Scopes) > 0 && !slices.Contains(i.Scopes, openID):
		wrong["scopes"] = errors.New("must have openid, or there is no ID token")
	}
	return wrong
}

func (i *issuer) scope() string { return cmp.Or(strings.Join(i.Scopes, " "), openID) }

// SignIns are the issuers at which people can sign in now, by name: those that have said where.
func (g *Guard) SignIns() []SignIn {
	list := []SignIn{}
	for _, i := range g.known.Load().issuers {
		at := i.keys.Endpoints()
		if i.ClientID != "" && at.Authorization != "" && at.Token != "" {
			list = append(list, SignIn{i.name, i.URL, at.Authorization, at.EndSession, i.ClientID, i.scope()})
		}
	}
	slices.SortFunc(list, func(a, b SignIn) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// SignIn changes a grant of the issuer of that name for an ID token by which somebody may call. The error is a
// [*Refusal]; it repeats nothing of grant and token.
func (g *Guard) SignIn(ctx context.Context, name string, grant Grant) (*Signed, error) {
	known := g.known.Load()
	i := known.named(name)
	switch {
	case i == nil || i.ClientID == "":
		return nil, &Refusal{http.StatusNotFound, "not_found", "there is no issuer of that name at which people sign in"}
	case !i.signIns.Allow():
		return nil, &Refusal{http.StatusTooManyRequests, "rate_limited", "too many people sign in at once"}
	}
	token, err := i.exchange(ctx, grant)
	if err != nil {
		return nil, g.notSigned(i, err)
	}
	signed := &Signed{Refresh: token.RefreshToken}
	if signed.IDToken, _ = token.Extra("id_token").(string); signed.IDToken == "" {
		return nil, unauthorized("the issuer " + name + " gave no ID token")
	}
	by, found, err := known.verified(ctx, signed.IDToken)
	if err == nil && by != i {
		err = unauthorized("the issuer " + name + " gave a token of another issuer")
	}
	if err == nil {
		_, err = i.caller(found, &g.limiters)
	}
	if err != nil {
		return nil, err
	}
	ends, _ := found["exp"].(float64) // It is there: the token was verified.
	signed.Lasts = max(0, time.Until(time.Unix(int64(ends), 0)).Seconds())
	return signed, nil
}

// errNowhere: the issuer has not said where codes are changed.
var errNowhere = errors.New("it has not told its token_endpoint")

func (i *issuer) exchange(ctx context.Context, grant Grant) (*oauth2.Token, error) {
	ctx, cancel := context.WithTimeout(ctx, signInTimeout)
	defer cancel()
	at := i.keys.Endpoints()
	if at.Token == "" {
		return nil, errNowhere
	}
	client, err := i.Keys().Client()
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	config := oauth2.Config{ClientID: i.ClientID, RedirectURL: grant.RedirectURI, Endpoint: oauth2.Endpoint{TokenURL: at.Token}}
	if i.SecretFile != "" {
		secret, err := os.ReadFile(i.SecretFile)
		if err != nil {
			return nil, err
		}
		config.ClientSecret = strings.TrimSpace(string(secret))
	} else {
		config.Endpoint.AuthStyle = oauth2.AuthStyleInParams // A public client has only its name.
	}
	ctx = context.WithValue(ctx, oauth2.HTTPClient, client)
	if grant.Refresh != "" {
		return config.TokenSource(ctx, &oauth2.Token{RefreshToken: grant.Refresh}).Token()
	}
	return config.Exchange(ctx, grant.Code, oauth2.VerifierOption(grant.Verifier))
}

// saneCode is an error code of RFC 6749. What else an issuer answers may repeat the grant, so nobody is told.
var saneCode = regexp.MustCompile(`^[a-z_]{1,64}$`)

// notSigned is what a failed exchange is for the caller; where the issuer is to blame, it is logged.
func (g *Guard) notSigned(i *issuer, err error) *Refusal {
	said, isAnswer := errors.AsType[*oauth2.RetrieveError](err)
	switch {
	case !isAnswer:
		g.logger.Warn("sign-in not answered", "event", "sign_in", "issuer", i.name, "err", err)
	case said.Response.StatusCode >= http.StatusInternalServerError:
		g.logger.Warn("sign-in not answered", "event", "sign_in", "issuer", i.name, "err", said.Response.Status)
	case saneCode.MatchString(said.ErrorCode):
		return unauthorized("the issuer " + i.name + " refused the sign-in: " + said.ErrorCode)
	default:
		return unauthorized("the issuer " + i.name + " refused the sign-in")
	}
	return &Refusal{http.StatusServiceUnavailable, "unavailable", "the issuer " + i.name + " did not answer the sign-in"}
}

package access

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"golang.org/x/time/rate"

	"github.com/delaybridge/delaybridge/internal/api/access/jwks"
)

// Issuer says which JWTs of an issuer are taken, and who their callers are.
type Issuer struct {
	URL        string        `yaml:"url" required:"true" doc:"The issuer, exactly as its tokens have it in iss. Its keys are found by discovery, unless jwks_url or jwks_file is given."`
	Audiences  []string      `yaml:"audiences" required:"true" doc:"A token must be meant for one of these (aud)."`
	JWKSURL    string        `yaml:"jwks_url" doc:"Where the issuer's keys are."`
	JWKSFile   string        `yaml:"jwks_file" file:"true" doc:"File with the issuer's keys, for an issuer that cannot be reached. It is read again when it changes."`
	CAFile     string        `yaml:"ca_file" file:"true" doc:"File with the certificates that sign the issuer's. Default: the system's. It is read at each fetch of the keys."`
	TokenFile  string        `yaml:"token_file" file:"true" doc:"File with a token that the issuer asks for before it shows its keys, as Kubernetes does. It is read at each fetch."`
	Algorithms []string      `yaml:"algorithms" doc:"Algorithms of signatures that are taken, such as ES256. Default: all of RS, PS and ES with 256, 384 and 512 bits, and EdDSA. There are no others."`
	Leeway     time.Duration `yaml:"leeway" default:"30s" min:"0s" max:"5m" doc:"How far the issuer's clock may be from ours."`
	Name       string        `yaml:"name_attribute" default:"sub" doc:"The attribute (what JWT calls a claim) that names the caller in the audit and the log."`
	ClientID   string        `yaml:"client_id" doc:"What the issuer knows the console as: people sign in there, and the console calls with their ID tokens. It must be one of audiences, and needs discovery."`
	SecretFile string        `yaml:"client_secret_file" file:"true" doc:"File with the client's secret, if the issuer gave it one. It is read at each sign-in."`
	Scopes     []string      `yaml:"scopes" doc:"What the console asks the issuer for. Default: openid. The names of groups often need one more; offline_access lets people stay signed in for longer than one token lasts."`
	Callers    []string      `yaml:"callers" required:"true" doc:"Who may do what: a line each, the first that fits counts. ATTRIBUTE=VALUE … ROLE [name=NAME] [queues=A,B] [topics=X,Y] [rate=N], see docs/identity.md."`
}

const (
	// mostIssuers is how many issuers there may be.
	mostIssuers = 16
	// mostJWT is how many bytes a JWT may have: those of users with many groups have some thousand.
	mostJWT = 8 << 10
	// mostName is how many bytes the name of a caller may have.
	mostName = 256
)

// asymmetric are the algorithms for which the issuer's public keys are no secret of ours.
var asymmetric = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// issuer is an [Issuer] that was checked.
type issuer struct {
	Issuer

	name       string
	algorithms []jose.SignatureAlgorithm
	lines      lines
	keys       *jwks.Source
	signIns    *rate.Limiter
}

func parseIssuer(name string, given Issuer) (*issuer, []Problem) {
	i := &issuer{Issuer: given, name: name, algorithms: asymmetric, signIns: rate.NewLimiter(signInsPerSecond, signInsPerSecond)}
	var problems []Problem
	wrong := func(key string, err error) {
		if err != nil {
			problems = append(problems, Problem{key, err})
		}
	}
	wrong("url", jwks.CheckURL(given.URL))
	if strings.Contains(given.URL, "?") {
		wrong("url", errors.New("must have no query"))
	}
	if given.JWKSURL != "" {
		wrong("jwks_url", jwks.CheckURL(given.JWKSURL))
	}
	if given.JWKSURL != "" && given.JWKSFile != "" {
		wrong("jwks_file", errors.New("jwks_url is given, too: give one of them"))
	}
	for key, err := range given.checkSignIn() {
		wrong(key, err)
	}
	if len(given.Algorithms) > 0 {
		i.algorithms = nil
	}
	for _, text := range given.Algorithms {
		algorithm := jose.SignatureAlgorithm(text)
		if !slices.Contains(asymmetric, algorithm) {
			wrong("algorithms", fmt.Errorf("%q is not one of %v", text, asymmetric))
		}
		i.algorithms = append(i.algorithms, algorithm)
	}
	var err error
	i.lines, err = parseLines(given.Callers)
	wrong("callers", err)
	return i, problems
}

// Keys says where the issuer's keys are.
func (i Issuer) Keys() jwks.Config {
	return jwks.Config{Issuer: i.URL, URL: i.JWKSURL, File: i.JWKSFile, CAFile: i.CAFile, TokenFile: i.TokenFile}
}

// isJWT reports whether a token looks like a JWT; others are looked for in the file only.
func isJWT(token string) bool { return strings.Count(token, ".") == 2 }

// byJWT is the caller of a JWT. The error is a [*Refusal]; it repeats nothing of the token.
func (k *known) byJWT(ctx context.Context, token string, limits *limiters) (*Caller, error) {
	i, found, err := k.verified(ctx, token)
	if err != nil {
		return nil, err
	}
	return i.caller(found, limits)
}

// verified returns the issuer and the attributes of a JWT that may be taken.
func (k *known) verified(ctx context.Context, token string) (*issuer, attributes, error) {
	if len(token) > mostJWT {
		return nil, nil, unauthorized(fmt.Sprintf("the token has more than %d bytes", mostJWT))
	}
	parsed, err := jwt.ParseSigned(token, asymmetric)
	if err != nil {
		return nil, nil, unauthorized("the token is no JWT with one of the signatures that are taken")
	}
	var said struct {
		Issuer string `json:"iss"`
	}
	if parsed.UnsafeClaimsWithoutVerification(&said) != nil {
		return nil, nil, unauthorized("the token's content is no JSON object")
	}
	i := k.issuers[said.Issuer]
	if i == nil {
		return nil, nil, unauthorized("the token's issuer is not known")
	}
	header := parsed.Headers[0] // A JWT has one.
	keys, err := i.keys.Find(ctx, header.KeyID)
	switch {
	case errors.Is(err, jwks.ErrAway):
		return nil, nil, &Refusal{http.StatusServiceUnavailable, "unavailable", "the keys of the issuer " + i.name + " could not be fetched: its tokens cannot be checked"}
	case err != nil:
		return nil, nil, unauthorized("the issuer " + i.name + " has no such key")
	}
	found, err := i.verify(parsed, jose.SignatureAlgorithm(header.Algorithm), keys, time.Now())
	if err != nil {
		return nil, nil, unauthorized("the token of the issuer " + i.name + " " + err.Error())
	}
	return i, found, nil
}

// verify returns the attributes of a token that one of the keys has signed, that is in force, and meant for us.
func (i *issuer) verify(token *jwt.JSONWebToken, algorithm jose.SignatureAlgorithm, keys []jose.JSONWebKey, now time.Time) (attributes, error) {
	if !slices.Contains(i.algorithms, algorithm) {
		return nil, errors.New("has another algorithm than those that are taken")
	}
	var standard jwt.Claims
	var all attributes
	isSigned := slices.ContainsFunc(keys, func(key jose.JSONWebKey) bool {
		return (key.Algorithm == "" || key.Algorithm == string(algorithm)) && token.Claims(key.Key, &standard, &all) == nil
	})
	if !isSigned {
		return nil, errors.New("is not signed by that key")
	}
	err := standard.ValidateWithLeeway(jwt.Expected{Issuer: i.URL, AnyAudience: i.Audiences, Time: now}, i.Leeway)
	switch {
	case standard.Expiry == nil:
		return nil, errors.New("must have an end (exp)")
	case standard.Subject == "":
		return nil, errors.New("must have a subject (sub)")
	case errors.Is(err, jwt.ErrExpired):
		return nil, errors.New("has expired")
	case errors.Is(err, jwt.ErrNotValidYet), errors.Is(err, jwt.ErrIssuedInTheFuture):
		return nil, errors.New("is not valid yet (nbf, iat)")
	case errors.Is(err, jwt.ErrInvalidAudience):
		return nil, errors.New("is meant for others (aud)")
	case err != nil:
		return nil, errors.New("is of another issuer")
	}
	return all, nil
}

// caller is who has these attributes. Where no line fits, it has a name and no role.
func (i *issuer) caller(a attributes, limits *limiters) (*Caller, error) {
	subject := a.values("sub")
	name := a.values(i.Name)
	if len(name) != 1 || !isName(name[0]) || len(subject) != 1 {
		return nil, forbidden(fmt.Sprintf("the attribute %s must name the caller, by up to %d printable characters", i.Name, mostName))
	}
	return callerOf(i.lines, a, i.name, name[0], identityOf("jwt", i.URL, subject[0]), limits)
}

// callerOf is who the lines make of attributes. source, the issuer, stands before its name.
func callerOf(ls lines, a attributes, source, name, identity string, limits *limiters) (*Caller, error) {
	given, err := ls.match(a)
	if err != nil {
		return &Caller{Name: source + "/" + name, identity: identity}, forbidden(source + "/" + name + " may not call: " + err.Error())
	}
	if given.name != "" {
		name = given.name
	}
	return &Caller{
		Name: source + "/" + name, Role: given.role, identity: identity, queues: given.queues, topics: given.topics,
		limiter: limits.of(identity, given),
	}, nil
}

func isName(text string) bool {
	isHidden := func(r rune) bool { return !unicode.IsPrint(r) }
	return text != "" && len(text) <= mostName && utf8.ValidString(text) && !strings.ContainsFunc(text, isHidden)
}

// identityOf tells callers of different kinds, issuers and subjects apart.
func identityOf(parts ...string) string {
	text, _ := json.Marshal(parts) // Texts can be written.
	hash := sha256.Sum256(text)
	return hex.EncodeToString(hash[:])
}

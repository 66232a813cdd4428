// Command pubsub is a Pub/Sub for tests: pstest, the server in memory of Google's module, behind
// Pub/Sub's REST API, with the limits that Google's documents name and pstest does not keep. Its
// argument is the address to listen on. It knows no login.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: pubsub ADDRESS")
	}
	log.Println("Pub/Sub for tests on", os.Args[1])
	memory := pstest.NewServer()
	memory.SetTimeNowFunc(clock()) // Of the messages of a key it delivers the oldest.
	server := &http.Server{Addr: os.Args[1], Handler: &api{server: &memory.GServer}, ReadHeaderTimeout: time.Minute}
	log.Fatal(server.ListenAndServe())
}

// clock never tells the same time twice.
func clock() func() time.Time {
	var mu sync.Mutex
	var last time.Time
	return func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		if !now.After(last) {
			now = last.Add(1)
		}
		last = now
		return now
	}
}

// api is the HTTP mapping of google/pubsub/v1/pubsub.proto. A topic that is made with ?subscription=NAME has that
// subscription, which keeps the order, from the first message on: Google has no such thing.
type api struct {
	server *pstest.GServer
	made   sync.RWMutex // held while a topic is made, or published to
}

// bodyMost bounds a request, in bytes: 10 MB in base64, and more.
const bodyMost = 20 << 20

// ServeHTTP implements [http.Handler].
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyMost))
	var answer proto.Message
	if err != nil {
		err = status.Error(codes.InvalidArgument, err.Error())
	} else {
		answer, err = a.call(r.Context(), r.Method, strings.TrimPrefix(r.URL.Path, "/v1/"), r.URL.Query().Get("subscription"), body)
	}
	if err == nil {
		text, _ := protojson.Marshal(answer)
		_, _ = w.Write(text)
		return
	}
	of := status.Convert(err)
	w.WriteHeader(statuses[of.Code()])
	_, _ = fmt.Fprintf(w, `{"error":{"code":%d,"message":%q,"status":%q}}`, statuses[of.Code()], of.Message(), code.Code(of.Code()))
}

// statuses are as in google/rpc/code.proto.
var statuses = map[codes.Code]int{
	codes.Canceled: 499, codes.Unknown: 500, codes.InvalidArgument: 400, codes.DeadlineExceeded: 504, codes.NotFound: 404, codes.AlreadyExists: 409,
	codes.PermissionDenied: 403, codes.ResourceExhausted: 429, codes.FailedPrecondition: 400, codes.Aborted: 409, codes.OutOfRange: 400,
	codes.Unimplemented: 501, codes.Internal: 500, codes.Unavailable: 503, codes.DataLoss: 500, codes.Unauthenticated: 401,
}

func (a *api) call(ctx context.Context, method, path, subscription string, body []byte) (proto.Message, error) {
	name, verb, _ := strings.Cut(path, ":")
	parts := strings.Split(name, "/")
	collection, ofList := "", ""
	if len(parts) > 3 {
		collection = parts[2]
	}
	if len(parts) == 5 {
		name, ofList = strings.Join(parts[:4], "/"), "/"+parts[4]
	}
	switch strings.TrimSpace(method + " " + collection + ofList + " " + verb) {
	case "PUT topics":
		a.made.Lock()
		defer a.made.Unlock()
		topic, err := a.server.CreateTopic(ctx, &pb.Topic{Name: name})
		if err == nil && subscription != "" {
			_, err = a.server.CreateSubscription(ctx, &pb.Subscription{Name: subscription, Topic: name, EnableMessageOrdering: true, AckDeadlineSeconds: 60})
		}
		return topic, err
	case "GET topics":
		return a.server.GetTopic(ctx, &pb.GetTopicRequest{Topic: name})
	case "DELETE topics":
		return a.server.DeleteTopic(ctx, &pb.DeleteTopicRequest{Topic: name})
	case "GET topics/subscriptions":
		return a.server.ListTopicSubscriptions(ctx, &pb.ListTopicSubscriptionsRequest{Topic: name})
	case "POST topics publish":
		request := &pb.PublishRequest{}
		if err := read(body, request); err != nil {
			return nil, err
		}
		request.Topic = name
		a.made.RLock()
		defer a.made.RUnlock()
		return a.server.Publish(ctx, request)
	case "PUT subscriptions":
		request := &pb.Subscription{}
		if err := read(body, request); err != nil {
			return nil, err
		}
		request.Name = name
		return a.server.CreateSubscription(ctx, request)
	case "POST subscriptions pull":
		request := &pb.PullRequest{}
		if err := read(body, request); err != nil {
			return nil, err
		}
		request.Subscription = name
		return a.server.Pull(ctx, request)
	case "POST subscriptions acknowledge":
		request := &pb.AcknowledgeRequest{}
		if err := read(body, request); err != nil {
			return nil, err
		}
		request.Subscription = name
		return a.server.Acknowledge(ctx, request)
	default:
		return nil, status.Errorf(codes.Unimplemented, "%s %s", method, path)
	}
}

func read(body []byte, request proto.Message) error {
	if err := protojson.Unmarshal(body, request); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if publish, ok := request.(*pb.PublishRequest); ok {
		return check(publish)
	}
	return nil
}

// check keeps the limits of https://cloud.google.com/pubsub/quotas#resource_limits.
func check(r *pb.PublishRequest) error {
	isWrong := len(r.GetMessages()) == 0 || len(r.GetMessages()) > 1000 || proto.Size(r) > 10_000_000
	for _, m := range r.GetMessages() {
		isWrong = isWrong || len(m.GetData()) == 0 && len(m.GetAttributes()) == 0 || len(m.GetAttributes()) > 100 || len(m.GetOrderingKey()) > 1024
		for name, value := range m.GetAttributes() {
			isWrong = isWrong || name == "" || len(name) > 256 || strings.HasPrefix(name, "goog") || len(value) > 1024
		}
	}
	if isWrong {
		return status.Error(codes.InvalidArgument, "a limit of the request, or of a message, is exceeded")
	}
	return nil
}

package sqs

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// Attributes of a message.
const (
	// AttributeHeaders has all headers, and the Key as [HeaderKey], as an object of JSON.
	AttributeHeaders = "delay-headers"
	// AttributeEncoding says what the body is, if it is not the message's own: [EncodingBase64] or
	// [EncodingEmpty].
	AttributeEncoding = "delay-encoding"
	// HeaderKey has the message's Key, if it has one.
	HeaderKey = "delay-key"

	// EncodingBase64 is that of a body which SQS could not carry.
	EncodingBase64 = "base64"
	// EncodingEmpty is that of an empty body, which SQS refuses: what it has is no part of the message.
	EncodingEmpty = "empty"

	noBody = "-"
)

// Limits of SQS.
const (
	// attributesMost is how many attributes a message may have, and ownMost how many of them are
	// copies of the producer's own headers: three are always left for the bridge's.
	attributesMost = 10
	ownMost        = attributesMost - 3
	nameMost       = 256
	groupMost      = 128
	// sizeMost is how large a message may be, with its attributes, in bytes.
	sizeMost = 1 << 20

	fifoSuffix = ".fifo"
	dataType   = "String"
)

// entry is a message as SQS takes it.
type entry struct {
	types.SendMessageBatchRequestEntry

	index, size int
}

// newEntry makes the entry of a message, by its index in the batch. Nothing refers to the message afterwards.
func newEntry(m *message.Message, index int) entry {
	e := entry{index: index}
	e.Id = aws.String(strconv.Itoa(index))
	body, encoding := encode(m.Body)
	e.MessageBody = &body
	e.size = len(body)
	e.MessageAttributes = map[string]types.MessageAttributeValue{}
	headers := m.PublishedHeaders()
	e.attribute(AttributeHeaders, headersText(headers, m.Key))
	e.attribute(message.HeaderUID, m.UID())
	if encoding != "" {
		e.attribute(AttributeEncoding, encoding)
	}
	own := 0
	for _, header := range headers {
		if own < ownMost && !message.IsReserved(header.Name) && isAttribute(header.Name) && header.Value != "" && isText(header.Value) {
			e.attribute(header.Name, header.Value)
			own++
		}
	}
	if strings.HasSuffix(m.Topic, fifoSuffix) {
		e.MessageGroupId = aws.String(groupOf(m))
		e.MessageDeduplicationId = aws.String(digest(m.ID + ":" + m.Token))
	}
	return e
}

func (e *entry) attribute(name, value string) {
	e.size += len(name) + len(dataType) + len(value)
	e.MessageAttributes[name] = types.MessageAttributeValue{DataType: aws.String(dataType), StringValue: &value}
}

// encode makes text of a body: SQS puts another character in the place of those that it does not
// carry, so what has one is never sent as it is.
func encode(body []byte) (text, encoding string) {
	switch {
	case len(body) == 0:
		return noBody, EncodingEmpty
	case utf8.Valid(body) && isText(string(body)):
		return string(body), ""
	default:
		return base64.StdEncoding.EncodeToString(body), EncodingBase64
	}
}

// isText reports whether valid UTF-8 has only the characters that SQS carries: those of XML 1.0.
func isText(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool {
		return r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == '\ufffe' || r == '\uffff'
	})
}

var noncharacters = strings.NewReplacer("\ufffe", `\ufffe`, "\uffff", `\uffff`)

// headersText is an object of JSON whose text SQS carries.
func headersText(headers []message.Header, key string) string {
	all := make(map[string]string, len(headers)+1)
	for _, header := range headers {
		all[header.Name] = header.Value
	}
	if key != "" {
		all[HeaderKey] = key
	}
	text, _ := json.Marshal(all) // Of texts it never fails.
	return noncharacters.Replace(string(text))
}

// isAttribute reports whether an attribute may have the name.
func isAttribute(name string) bool {
	lower := strings.ToLower(name)
	isOther := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_' && r != '-' && r != '.'
	}
	return len(name) <= nameMost && !strings.ContainsFunc(lower, isOther) && !strings.Contains("."+name+".", "..") &&
		!strings.HasPrefix(lower, "aws.") && !strings.HasPrefix(lower, "amazon.")
}

// groupOf is the message group, in which a FIFO queue keeps the order: that of the Key, or the
// message's own.
func groupOf(m *message.Message) string {
	key := m.Key
	if key == "" {
		key = m.UID()
	}
	isOther := func(r rune) bool { return r <= ' ' || r >= 0x7f }
	if len(key) > groupMost || strings.ContainsFunc(key, isOther) {
		return digest(key)
	}
	return key
}

// digest is a text of 64 characters that stands for another.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

package lab

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"time"
)

// answerMax bounds what is read of one answer, in bytes.
const answerMax = 1 << 20

// wire posts over as many kept connections as there are claimers. net/http's own client costs as much as Dibs' answer,
// and on one machine what the claimers use is taken from the servers; a storefront's client runs elsewhere.
type wire struct {
	host string
	idle chan *wireConn // nil in it: to be dialled
}

type wireConn struct {
	conn net.Conn
	in   *bufio.Reader
	out  []byte
}

func newWire(base string, connections int) (*wire, error) {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" || u.Host == "" {
		return nil, fmt.Errorf("%w: endpoint %q", ErrConfig, base)
	}
	w := &wire{host: u.Host, idle: make(chan *wireConn, max(connections, 1))}
	for range cap(w.idle) {
		w.idle <- nil
	}
	return w, nil
}

func (w *wire) close() {
	for range cap(w.idle) {
		if c := <-w.idle; c != nil {
			_ = c.conn.Close()
		}
	}
}

// post sends a JSON body and returns status and body of the answer.
func (w *wire) post(ctx context.Context, path, key string, body []byte) (status int, answer []byte, err error) {
	c := <-w.idle
	defer func() { w.idle <- c }()
	if c == nil {
		c, err = w.dial(ctx)
		if err != nil {
			return 0, nil, err
		}
	}
	status, answer, keep, err := c.roundTrip(w.host, path, key, body)
	if err != nil || !keep {
		_ = c.conn.Close()
		c = nil
	}
	return status, answer, err
}

func (w *wire) dial(ctx context.Context) (*wireConn, error) {
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", w.host)
	if err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	return &wireConn{conn: conn, in: bufio.NewReader(conn)}, nil
}

func (c *wireConn) roundTrip(host, path, key string, body []byte) (status int, answer []byte, keep bool, err error) {
	if err := c.conn.SetDeadline(time.Now().Add(ioTimeout)); err != nil {
		return 0, nil, false, fmt.Errorf("lab: %w", err)
	}
	if _, err := c.conn.Write(c.request(host, path, key, body)); err != nil {
		return 0, nil, false, fmt.Errorf("lab: send: %w", err)
	}
	status, length, keep, err := c.readHead()
	if err != nil {
		return 0, nil, false, err
	}
	answer = make([]byte, length)
	if _, err := io.ReadFull(c.in, answer); err != nil {
		return 0, nil, false, fmt.Errorf("lab: answer: %w", err)
	}
	return status, answer, keep, nil
}

// errAnswer says that an answer is not one that the lab reads.
var errAnswer = errors.New("lab: not an answer the lab can read")

// readHead reads status line and headers of an answer whose body has a known length, as all of Dibs' have.
func (c *wireConn) readHead() (status, length int, keep bool, err error) {
	text, err := c.in.ReadSlice('\n')
	if err != nil {
		return 0, 0, false, fmt.Errorf("lab: answer: %w", err)
	}
	if len(text) < len("HTTP/1.1 200") || string(text[:9]) != "HTTP/1.1 " {
		return 0, 0, false, fmt.Errorf("%w: %.100q", errAnswer, text)
	}
	status, err = strconv.Atoi(string(text[9:12]))
	if err != nil {
		return 0, 0, false, fmt.Errorf("%w: %.100q", errAnswer, text)
	}
	length = -1
	keep = true
	for {
		text, err := c.in.ReadSlice('\n')
		if err != nil {
			return 0, 0, false, fmt.Errorf("lab: answer: %w", err)
		}
		name, value, _ := bytes.Cut(bytes.TrimSpace(text), []byte(": "))
		switch {
		case len(name) == 0:
			if length < 0 || length > answerMax {
				return 0, 0, false, fmt.Errorf("%w: its length is %d", errAnswer, length)
			}
			return status, length, keep, nil
		case bytes.EqualFold(name, []byte("Content-Length")):
			length, err = strconv.Atoi(string(value))
			if err != nil {
				return 0, 0, false, fmt.Errorf("%w: %.100q", errAnswer, text)
			}
		case bytes.EqualFold(name, []byte("Connection")):
			keep = !bytes.EqualFold(value, []byte("close"))
		}
	}
}

func (c *wireConn) request(host, path, key string, body []byte) []byte {
	b := c.out[:0]
	b = append(b, "POST "...)
	b = append(b, path...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, host...)
	b = append(b, "\r\nContent-Type: application/json\r\nIdempotency-Key: "...)
	b = append(b, key...)
	b = append(b, "\r\nContent-Length: "...)
	b = strconv.AppendInt(b, int64(len(body)), 10)
	b = append(b, "\r\n\r\n"...)
	b = append(b, body...)
	c.out = b
	return b
}

package bench_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

const (
	batchDrivers = 4   // connections that send batches
	batchClaims  = 256 // per request
)

type batchAnswer struct {
	Results []struct {
		Status int `json:"status"`
	} `json:"results"`
}

func (a *batchAnswer) refused() (n int) {
	for _, one := range a.Results {
		if one.Status != http.StatusCreated && one.Status != http.StatusOK {
			n++
		}
	}
	return n
}

// postBatch sends claims in one request; of returns claim i's
// campaign and user. The key is the user's name.
func postBatch(c *http.Client, addr string, claims int, of func(i int) (campaign, user string)) (*batchAnswer, error) {
	var body strings.Builder
	body.WriteString(`{"claims":[`)
	for i := range claims {
		if i > 0 {
			body.WriteByte(',')
		}
		campaign, user := of(i)
		fmt.Fprintf(&body, `{"campaign_id":%q,"user_id":%q,"idempotency_key":%q}`, campaign, user, user)
	}
	body.WriteString(`]}`)
	resp, err := c.Post("http://"+addr+"/v1/claims:batch", "application/json", strings.NewReader(body.String()))
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%w: a batch: %s", errRefused, resp.Status)
	}
	var answer batchAnswer
	return &answer, json.NewDecoder(resp.Body).Decode(&answer)
}

// sendBatches makes claims in batches over HTTP, each of a new
// user and a random campaign. All must be accepted.
func sendBatches(b *testing.B, addr string, claims int, campaigns []string) {
	b.Helper()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: batchDrivers}, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	var sent atomic.Int64
	group, ctx := errgroup.WithContext(b.Context())
	for driver := range batchDrivers {
		group.Go(func() error {
			dice := rand.New(rand.NewPCG(uint64(driver), 1))
			for ctx.Err() == nil {
				from := int(sent.Add(batchClaims)) - batchClaims
				if from >= claims {
					break
				}
				answer, err := postBatch(client, addr, min(batchClaims, claims-from), func(i int) (campaign, user string) {
					return campaigns[dice.IntN(len(campaigns))], "user-" + strconv.Itoa(from+i)
				})
				if err == nil && answer.refused() > 0 {
					err = fmt.Errorf("%w: %d of a batch", errRefused, answer.refused())
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(b, group.Wait())
}

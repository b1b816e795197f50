package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"dibs/client"
	"dibs/cmd"
)

// A storefront's claims, from creating the campaign to a refusal, on `dibs
// serve` with embedded servers.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	url, stop := embedded(ctx)
	defer stop()

	c, err := client.New(client.Config{BaseURL: url})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Disconnect()
	total := int64(1)
	if _, _, err := c.CreateCampaign(ctx, client.NewCampaign{ID: "spring", Kind: client.KindCoupon, Total: &total}); err != nil {
		fmt.Println(err)
		return
	}

	for _, user := range []string{"ada", "bob"} {
		claim, err := c.Claim(ctx, client.ClaimRequest{CampaignID: "spring", UserID: user})
		switch {
		case err == nil:
			fmt.Println(claim.UserID, "holds claim number", claim.Seq)
		case errors.Is(err, client.ErrSoldOut):
			fmt.Println(user, "came too late")
		default:
			fmt.Println(err)
		}
	}
	for claim, err := range c.AllUserClaims(ctx, "ada", "") {
		fmt.Println(claim.CampaignID, claim.Status, err)
	}
	// Output:
	// ada holds claim number 1
	// bob came too late
	// spring claimed <nil>
}

func embedded(ctx context.Context) (url string, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	up, ended := make(chan string, 1), make(chan int, 1)
	go func() {
		ended <- cmd.Run(ctx, cmd.Env{
			Args: []string{"serve", "--http-addr", "127.0.0.1:0"}, Stdout: io.Discard, Stderr: os.Stderr, Listening: func(addr string) { up <- addr },
			Environ: []string{"DIBS_LOG_LEVEL=error"},
		})
	}()
	addr := <-up
	return "http://" + addr, func() {
		cancel()
		<-ended
	}
}

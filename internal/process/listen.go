package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"dibs/api"
	"dibs/api/auth"
	"dibs/internal/config"
)

// CheckListen refuses an unsafe address before anything is started.
func CheckListen(cfg *config.Config) error { return checkAddr(cfg, "HTTP_ADDR", cfg.HTTPAddr) }

func checkMetricsListen(cfg *config.Config) error {
	if cfg.MetricsAddr == "" {
		return nil
	}
	return checkAddr(cfg, "METRICS_ADDR", cfg.MetricsAddr)
}

func checkAddr(cfg *config.Config, setting, addr string) error {
	if _, err := Certificate(cfg).Config(slog.New(slog.DiscardHandler)); err != nil {
		return config.Refuse("TLS_CERT", "%w", err)
	}
	err := auth.Door{Addr: addr, TLS: Certificate(cfg) != api.TLS{}, Insecure: cfg.Insecure}.Check(Tokens(cfg))
	if refused, ok := errors.AsType[*auth.SettingError](err); ok {
		return config.Refuse(refused.Setting, "%w", refused.Err)
	}
	if err != nil {
		return config.Refuse(setting, "%w", err)
	}
	return nil
}

// Tokens returns the settings' bearer tokens.
func Tokens(cfg *config.Config) api.Tokens {
	return api.Tokens{
		Admin: cfg.AdminToken, Storefront: cfg.StorefrontToken, Viewer: cfg.ViewerToken,
		AdminFile: cfg.FileOf("ADMIN_TOKEN"), StorefrontFile: cfg.FileOf("STOREFRONT_TOKEN"), ViewerFile: cfg.FileOf("VIEWER_TOKEN"),
		File: cfg.TokensFile,
		JWT:  auth.JWT{File: cfg.JWKSFile, URL: cfg.JWKSURL, Issuer: cfg.JWTIssuer, Audience: cfg.JWTAudience, MaxAge: cfg.JWKSMaxAge},
	}
}

// Certificate returns the settings' certificate.
func Certificate(cfg *config.Config) api.TLS { return api.TLS{Cert: cfg.TLSCert, Key: cfg.TLSKey} }

// listen blames the setting for an invalid address, but not for one in use.
func listen(ctx context.Context, setting, addr string) (net.Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err == nil {
		return listener, nil
	}
	_, noAddr := errors.AsType[*net.AddrError](err)
	unknown, noHost := errors.AsType[*net.DNSError](err)
	if noAddr || noHost && unknown.IsNotFound {
		return nil, config.Refuse(setting, "%w", err)
	}
	return nil, fmt.Errorf("process: %w", err)
}

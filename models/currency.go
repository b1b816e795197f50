package models

import "strings"

// minorUnits are ISO 4217 codes, indexed by the digits of their minor unit.
// The list is that of 2026-01-01, with withdrawn codes that still occur in
// accounts. CLDR, and golang.org/x/text/currency with it, was rejected: it
// rounds many currencies to whole units, such as IDR and IQD. Metals, baskets
// and test codes (XAU, XDR, XXX) have no minor unit, so there are no amounts
// of them.
var minorUnits = [...]string{
	0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
	2: "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF CHE CHF CHW " +
		"CNY COP COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF " +
		"IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK " +
		"MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP " +
		"SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD USN UYU UZS VED VES WST XAD XCD XCG " +
		"YER ZAR ZMW ZWG" +
		" ANG BGN CUC HRK SLL ZWL", // withdrawn
	3: "BHD IQD JOD KWD LYD OMR TND",
	4: "CLF UYW",
}

// MinorDigits returns the digits of a currency's minor unit: 2 for EUR, 0 for
// JPY. ok is false if ISO 4217 lacks the code or the code has no minor unit.
// Older campaigns may have such a code, see IsCurrency.
func MinorDigits(code string) (digits int, ok bool) {
	for n, codes := range minorUnits {
		if IsCurrency(code) && strings.Contains(codes, code) {
			return n, true
		}
	}
	return 0, false
}

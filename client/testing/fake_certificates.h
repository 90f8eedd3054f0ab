// Certificates for tests of clients that read from another node: of an authority that exists
// nowhere else. They are valid until 2126. Real ones are made by server/peer/job_certificates.h.
#pragma once

namespace forebay::testing {

// The host name in the certificate of the node.
inline constexpr char kTestCertifiedName[] = "node.test";

inline constexpr char kTestAuthority[] = R"(-----BEGIN CERTIFICATE-----
MIIBQjCB9aADAgECAhRYTYZ4XNJF8mzETln1b5S4vWKPTDAFBgMrZXAwHTEbMBkG
A1UEAwwSYXV0aG9yaXR5IG9mIHRlc3RzMCAXDTI2MTEyOTE3MzY0MVoYDzIxMjYx
MTA1MTczNjQxWjAdMRswGQYDVQQDDBJhdXRob3JpdHkgb2YgdGVzdHMwKjAFBgMr
ZXADIQDWlRulBtqR7xvCtoI4A08dBSi74gMpSXe9AEqSmxCppqNFMEMwEgYDVR0T
AQH/BAgwBgEB/wIBADAOBgNVHQ8BAf8EBAMCAgQwHQYDVR0OBBYEFBPBbhhirMDr
0gPvlbNQrzZ5u9H9MAUGAytlcANBAGzio1IbHb2InfpE6EHCKnsPIPLSiuiqe5IM
rtgJoUhsmhjnqQ2HZAXQteAu44qcy9JTE3reoidKJShJMUpDTwM=
-----END CERTIFICATE-----
)";

inline constexpr char kTestNode[] = R"(-----BEGIN CERTIFICATE-----
MIIBjDCCAT6gAwIBAgIUUuhpu6mrcJh3sGfN/6tsJpj9GmowBQYDK2VwMB0xGzAZ
BgNVBAMMEmF1dGhvcml0eSBvZiB0ZXN0czAgFw0yNjExMjkxNzM2NDFaGA8yMTI2
MTEwNTE3MzY0MVowFDESMBAGA1UEAwwJbm9kZS50ZXN0MCowBQYDK2VwAyEAoGl2
FcXpHAsREP8mXKNYjEKgI9EuAtWyhDbTk5t7D3KjgZYwgZMwDAYDVR0TAQH/BAIw
ADAOBgNVHQ8BAf8EBAMCB4AwHQYDVR0lBBYwFAYIKwYBBQUHAwEGCCsGAQUFBwMC
MBQGA1UdEQQNMAuCCW5vZGUudGVzdDAdBgNVHQ4EFgQUMBrqtdbH3dqY6gyboUTm
Cr+sj0YwHwYDVR0jBBgwFoAUE8FuGGKswOvSA++Vs1CvNnm70f0wBQYDK2VwA0EA
0HNrsjP6hz9jqlYlBN6NgANl+pysJ+f+nA7CLO3OQ2BRWU7ciNCIYxso2/y9Em2S
L/h5LKUssmK/Y5+gSl4kCw==
-----END CERTIFICATE-----
)";

inline constexpr char kTestNodeKey[] = R"(-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIKutNCUE2rgIXdDinxnAiEkYXKJcDBh84ly1qdXF378G
-----END PRIVATE KEY-----
)";

inline constexpr char kTestClient[] = R"(-----BEGIN CERTIFICATE-----
MIIBhjCCATigAwIBAgIUUuhpu6mrcJh3sGfN/6tsJpj9GmswBQYDK2VwMB0xGzAZ
BgNVBAMMEmF1dGhvcml0eSBvZiB0ZXN0czAgFw0yNjExMjkxNzM2NDFaGA8yMTI2
MTEwNTE3MzY0MVowFjEUMBIGA1UEAwwLY2xpZW50LnRlc3QwKjAFBgMrZXADIQDi
ixBEhnmdEEkD1jKit6AP4qqNX3kQHaci4Zv18pKj+6OBjjCBizAMBgNVHRMBAf8E
AjAAMA4GA1UdDwEB/wQEAwIHgDATBgNVHSUEDDAKBggrBgEFBQcDAjAWBgNVHREE
DzANggtjbGllbnQudGVzdDAdBgNVHQ4EFgQUXGFD+3Lm/J8TCNciILK01RJb/Gww
HwYDVR0jBBgwFoAUE8FuGGKswOvSA++Vs1CvNnm70f0wBQYDK2VwA0EAzruic8SM
rtJecqRvEp06hCHFAt33jTX12V+ug2541YLCQlVFcmQW+Z73VlLgxJdNvesdJnEA
1keaAREvAjghBg==
-----END CERTIFICATE-----
)";

inline constexpr char kTestClientKey[] = R"(-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEINZkSuF4MPcr5tzfERJguckfgVoUxF0E4NAEqSWq/N8q
-----END PRIVATE KEY-----
)";

// For kTestClientKey, signed by an authority that the node does not know.
inline constexpr char kStrangeClient[] = R"(-----BEGIN CERTIFICATE-----
MIIBhjCCATigAwIBAgIUZ40jR3uflq0D8t01EhEYLSzEm1swBQYDK2VwMB0xGzAZ
BgNVBAMMEmF1dGhvcml0eSBvZiB0ZXN0czAgFw0yNjExMjkxNzM2NDFaGA8yMTI2
MTEwNTE3MzY0MVowFjEUMBIGA1UEAwwLY2xpZW50LnRlc3QwKjAFBgMrZXADIQDi
ixBEhnmdEEkD1jKit6AP4qqNX3kQHaci4Zv18pKj+6OBjjCBizAMBgNVHRMBAf8E
AjAAMA4GA1UdDwEB/wQEAwIHgDATBgNVHSUEDDAKBggrBgEFBQcDAjAWBgNVHREE
DzANggtjbGllbnQudGVzdDAdBgNVHQ4EFgQUXGFD+3Lm/J8TCNciILK01RJb/Gww
HwYDVR0jBBgwFoAUY52jAxy0vvgDegRowB6jctLeEF8wBQYDK2VwA0EAaoL04QzN
JVfT4pSc1lkZb9rg6h+OqQgFbz6iBf8VefBzjhpvjW2bom9caMM2dR7AEr+avt1h
ny4/YzPgUih9DQ==
-----END CERTIFICATE-----
)";

}  // namespace forebay::testing

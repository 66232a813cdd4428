package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/subtle"
)

const (
	keySize   = 32
	nonceSize = 24
	halfNonce = nonceSize / 2
)

// xaes is one key of XAES-256-GCM.
type xaes struct {
	block cipher.Block
	k1    [aes.BlockSize]byte // the subkey of CMAC for whole blocks
}

func newXAES(key []byte) (*xaes, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	x := &xaes{block: block}
	block.Encrypt(x.k1[:], x.k1[:])
	carry := byte(0)
	for i := len(x.k1) - 1; i >= 0; i-- {
		x.k1[i], carry = x.k1[i]<<1|carry, x.k1[i]>>7
	}
	x.k1[len(x.k1)-1] ^= carry * 0x87
	return x, nil
}

// derived is AES-256-GCM with the key for messages of this nonce. It takes the nonce's
// second half.
func (x *xaes) derived(nonce []byte) (cipher.AEAD, error) {
	var key [keySize]byte
	for i := range keySize / aes.BlockSize {
		half := key[i*aes.BlockSize:][:aes.BlockSize]
		copy(half, []byte{0, byte(i + 1), 'X', 0})
		copy(half[4:], nonce[:halfNonce])
		subtle.XORBytes(half, half, x.k1[:])
		x.block.Encrypt(half, half)
	}
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

func (x *xaes) seal(into, nonce, body, bound []byte) ([]byte, error) {
	aead, err := x.derived(nonce)
	if err != nil {
		return nil, err
	}
	return aead.Seal(into, nonce[halfNonce:], body, bound), nil
}

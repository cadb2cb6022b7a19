import io
import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from rewards.errors import InputError
from rewards.images import Picture, content_hash, to_pil, to_pil_list

RED = (255, 0, 0)


def encoded(image: Image.Image, format: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def png_header(width: int, height: int) -> bytes:
    """A PNG that claims a size and holds nothing."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    "mode", ["1", "L", "P", "RGB", "RGBA", "RGBX", "RGBa", "CMYK", "YCbCr", "HSV", "LA", "La", "PA"]
)
def test_every_mode_keeps_a_colour(mode):
    source = Image.new("RGB", (7, 5), (255, 255, 255))
    picture = to_pil(source.convert("RGBA" if mode == "RGBa" else "LA" if mode in ("La", "PA") else mode).convert(mode))
    assert picture.mode == "RGB"
    assert picture.size == (7, 5)
    assert picture.getpixel((3, 3)) == (255, 255, 255)


def test_lab_is_converted_with_its_profile():
    assert to_pil(Image.new("LAB", (4, 4), (255, 128, 128))).getpixel((0, 0)) == pytest.approx((255, 255, 255), abs=3)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparency_is_laid_on_white(mode):
    if mode == "P":
        image = Image.new("P", (4, 4), 0)
        image.putpalette([0, 0, 0, *RED])
        image.info["transparency"] = 0
    else:
        image = Image.new(mode, (4, 4), (0,) * len(mode))
    assert to_pil(image).getpixel((1, 1)) == (255, 255, 255)
    assert to_pil(encoded(image)).getpixel((1, 1)) == (255, 255, 255)


def test_half_transparent_red_is_pink():
    assert to_pil(Image.new("RGBA", (2, 2), (255, 0, 0, 128))).getpixel((0, 0)) == pytest.approx((255, 127, 127), abs=1)


@pytest.mark.parametrize("mode", ["I;16", "I;16B", "I"])
def test_sixteen_bit_greys_are_scaled_not_clipped(mode):
    values = np.array([[0, 257 * 100], [257 * 200, 65535]], dtype=np.uint16)
    image = (
        Image.fromarray(values).convert("I")
        if mode == "I"
        else Image.frombytes(mode, (2, 2), values.astype(">u2" if mode == "I;16B" else "<u2").tobytes())
    )
    assert np.asarray(to_pil(image))[..., 0].tolist() == [[0, 100], [200, 255]]


def test_float_mode_is_zero_to_one():
    assert to_pil(Image.fromarray(np.full((2, 2), 0.5, dtype=np.float32))).getpixel((0, 0)) == (128, 128, 128)
    with pytest.raises(InputError, match=r"image 3 .*\[0, 200\]"):
        to_pil(Image.fromarray(np.array([[0, 200]], dtype=np.float32)), 3)


def test_exif_rotation_is_applied():
    image = Image.new("RGB", (6, 2), (0, 0, 255))
    image.putpixel((0, 0), RED)
    exif = Image.Exif()
    exif[0x0112] = 6  # the top of the scene is on the right: turn clockwise
    turned = to_pil(encoded(image, exif=exif))
    assert turned.size == (2, 6)
    assert turned.getpixel((1, 0)) == RED


@pytest.mark.parametrize("make", [torch.tensor, np.array])
def test_layouts_and_dtypes_agree(make):
    pixels = np.random.RandomState(0).randint(0, 255, (8, 6, 3), dtype=np.uint8)
    expected = pixels.tolist()
    for array in (
        pixels,
        pixels.transpose(2, 0, 1),
        pixels / 255.0,
        (pixels / 255.0).transpose(2, 0, 1).astype(np.float32),
    ):
        assert (
            np.asarray(
                to_pil(make(array.tolist(), dtype=getattr(torch if make is torch.tensor else np, str(array.dtype))))
            ).tolist()
            == expected
        )


def test_bfloat16_and_grey_and_alpha_tensors():
    assert to_pil(torch.full((1, 5, 6), 0.5, dtype=torch.bfloat16)).getpixel((0, 0)) == (128, 128, 128)
    assert to_pil(torch.zeros(5, 6, dtype=torch.uint8)).size == (6, 5)
    assert to_pil(np.zeros((5, 6, 4), dtype=np.uint8)).getpixel((0, 0)) == (255, 255, 255)
    assert to_pil(np.full((5, 6), 65535, dtype=np.uint16)).getpixel((0, 0)) == (255, 255, 255)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((3, 8, 3), np.uint8), "could be"),
        (np.zeros((5, 8, 7), np.uint8), "channels"),
        (np.zeros((0, 8, 3), np.uint8), "empty"),
        (np.zeros((2, 8, 8, 3), np.uint8), "expected"),
        (np.zeros((8, 8, 3), np.int64), "dtype int64"),
        (np.full((8, 8, 3), 200.0), r"\[200, 200\]"),
        (np.full((8, 8, 3), -1.0), r"\[-1, -1\]"),
        (torch.full((3, 8, 8), torch.nan), "NaN"),
        (torch.full((3, 8, 8), torch.inf), "infinity"),
        (Image.new("RGB", (0, 4)), "empty"),
        (b"", "cannot be read"),
        (b"not a picture", "cannot be read"),
        (encoded(Image.effect_noise((64, 64), 90))[:900], "cannot be decoded"),
        (png_header(20_000, 20_000), "cannot be read|limit"),
        (png_header(10_000, 9_000), "limit"),
        ("missing.png", "does not exist"),
        ("nul\0byte", "not a usable path|does not exist"),
        (None, "NoneType"),
        (7, "int"),
    ],
)  # fmt: skip
def test_refusals_name_the_index(image, message):
    with pytest.raises(InputError, match=message) as caught:
        to_pil(image, 5)
    assert str(caught.value).startswith("image 5")


def test_paths_bytes_and_dataset_dicts(tmp_path):
    image = Image.new("RGB", (3, 4), RED)
    image.save(tmp_path / "a.png")
    raw = (tmp_path / "a.png").read_bytes()
    for form in (
        tmp_path / "a.png",
        str(tmp_path / "a.png"),
        raw,
        bytearray(raw),
        {"bytes": raw, "path": None},
        {"bytes": None, "path": str(tmp_path / "a.png")},
    ):
        assert to_pil(form).getpixel((2, 3)) == RED


def test_lists_and_batches():
    batch = torch.zeros(2, 3, 8, 6)
    assert [picture.size for picture in to_pil_list(batch)] == [(6, 8), (6, 8)]
    assert [picture.size for picture in to_pil_list(batch.permute(0, 2, 3, 1).numpy())] == [(6, 8), (6, 8)]
    with pytest.raises(InputError, match="image 1"):
        to_pil_list([Image.new("RGB", (3, 3)), b"broken"])
    for single in (Image.new("RGB", (3, 3)), torch.zeros(3, 8, 8), "a.png"):
        with pytest.raises(InputError, match=r"list of images|a list"):
            to_pil_list(single)


def test_content_hash_is_of_the_pixels():
    pixels = np.random.RandomState(1).randint(0, 255, (8, 6, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    forms = [pixels, image, encoded(image), torch.from_numpy(pixels).permute(2, 0, 1), pixels / 255.0]
    assert len({content_hash(form) for form in forms}) == 1
    assert content_hash(np.zeros((2, 8, 3), np.uint8)) != content_hash(np.zeros((8, 2, 3), np.uint8))


def test_the_callers_picture_is_left_alone():
    image = Image.new("RGBA", (4, 4), (1, 2, 3, 4))
    to_pil(image)
    assert image.mode == "RGBA"
    assert image.getpixel((0, 0)) == (1, 2, 3, 4)


def test_greys_made_from_8_bits_are_not_read_as_16():
    greys = Image.fromarray(np.array([[0, 100], [200, 255]], dtype=np.uint8))
    assert np.asarray(to_pil(greys.convert("I")))[..., 0].tolist() == [[0, 100], [200, 255]]
    assert content_hash(greys.convert("I")) == content_hash(greys)


def test_a_dark_16_bit_file_stays_dark():
    dark = Image.fromarray(np.full((2, 2), 200, dtype=np.uint16))
    assert to_pil(encoded(dark)).getpixel((0, 0)) == (1, 1, 1)
    assert to_pil(encoded(dark, "PPM")).getpixel((0, 0)) == (1, 1, 1)


def test_a_format_that_starts_another_program_is_refused():
    with pytest.raises(InputError, match="cannot be read as a picture"):
        to_pil(encoded(Image.new("RGB", (4, 4)), "EPS"))


def test_a_column_of_a_data_set_is_a_list_of_images():
    datasets = pytest.importorskip("datasets")
    column = datasets.Dataset.from_dict({"image": [encoded(Image.new("RGB", (4, 4), RED))]})["image"]
    assert to_pil_list(column)[0].getpixel((0, 0)) == RED


def test_a_picture_that_was_read_passes_as_it_is():
    read = Image.new("RGB", (4, 4), RED)
    assert to_pil(Picture(read, "key")) is read


def test_a_pandas_column_is_a_list_whatever_its_labels():
    pandas = pytest.importorskip("pandas")
    for index in (None, [5, 3], ["a", "b"]):
        column = pandas.Series([Image.new("RGB", (4, 4), RED), Image.new("RGB", (5, 4))], index=index, dtype=object)
        assert [picture.size for picture in to_pil_list(column)] == [(4, 4), (5, 4)]
    for single in ("a.png", b"a", {"bytes": b""}, {1}, None, 3, iter([])):
        with pytest.raises(InputError, match="list of images"):
            to_pil_list(single)


@pytest.mark.parametrize("values", [[[0, 100], [200, 255]], [[0, 257 * 100], [257 * 200, 65535]]])
def test_wide_greys_in_memory_are_read_by_their_range_in_every_form(values):
    """0-255 where no value is larger, else 0-65535; a file says itself that it has 16 bits."""
    short, long = np.array(values, dtype=np.uint16), np.array(values, dtype=np.int32)
    forms = [short, long, Image.fromarray(short), Image.fromarray(long), torch.from_numpy(long)]
    for form in forms:
        assert np.asarray(to_pil(form))[..., 0].tolist() == [[0, 100], [200, 255]]
    with pytest.raises(InputError, match="-1 to 5"):
        to_pil(np.array([[-1, 5]], dtype=np.int32))

"""Which column is what."""

import warnings

import pytest
from table_files import write

import unbag
from unbag._utils.problems import TableError
from unbag.tables.plan import make_plan
from unbag.tables.roles import columns_of_instances, columns_of_source


def understand(instances, groups, **options):
    plan = make_plan({"instances": "people.csv", "groups": "groups.csv", **options})
    instances, groups = instances.split(","), groups.split(",")
    of_instances = columns_of_instances(instances, plan, [groups])
    return of_instances, columns_of_source(groups, plan.sources[0], plan, of_instances)


@pytest.mark.parametrize(
    ("groups", "kind", "certain"),
    [
        ("bag,ill,well", "label_proportions", True),
        ("bag,ill,well,size", "label_proportions", True),
        ("bag,positive", "multiple_instance", True),
        ("bag,size,label", "multiple_instance", True),
        ("a,b,similar", "pairwise_similarity", True),
        ("i,j,z", "pairwise_similarity", False),
        ("left,right,relation", "ordinal_rank", True),
        ("id_1,id_2,lower", "ordinal_rank", True),
        ("a,b,c,closer", "triplet_comparison", False),
        ("row 1,row 2,row 3,z", "triplet_comparison", False),
    ],
)
def test_the_kind_of_observation_is_told_by_the_columns(groups, kind, certain):
    _, found = understand("id,bag,x", groups)
    assert (found.aggregate, found.certain) == (kind, certain)


def test_a_shared_column_is_found_whatever_its_capitals():
    of_instances, found = understand("person,ward no,age", "Ward-No,ill,well")
    assert (of_instances.group, found.group, found.classes) == ("ward no", "Ward-No", ("ill", "well"))
    with pytest.raises(TableError, match=r"columns 'Ward', 'WARD' could both be meant; name .* --group-in-groups"):
        understand("ward,age", "Ward,WARD,ill,well")


def test_columns_that_have_a_meaning_are_no_features():
    found, source = understand("ID,Cohort-ID,age,Label,note", "cohort id,ill,well,size", exclude=["note"])
    assert (found.id, found.group, found.label, found.features) == ("ID", "Cohort-ID", "Label", ("age",))
    assert (source.group, source.classes, source.size) == ("cohort id", ("ill", "well"), "size")


def test_names_that_are_given_win():
    found, source = understand(
        "key,id,team,group,age",
        "club,won,lost,drawn",
        id="key",
        group="team",
        group_in_groups="club",
        classes=["won", "lost"],
        features=["age", "group"],
    )
    assert (found.id, found.group, found.features) == ("key", "team", ("age", "group"))
    assert (source.group, source.classes, source.unused) == ("club", ("won", "lost"), ("drawn",))
    _, source = understand(
        "id,x", "who,whom,what,n", members=["who", "whom"], observed="what", aggregate="ordinal_rank"
    )
    assert (source.members, source.observed, source.unused) == (("who", "whom"), "what", ("n",))


@pytest.mark.parametrize(
    ("instances", "options", "subject"),
    [
        ("id,ward,age,patient_id", {}, "patient_id"),
        ("id,ward,age,name", {"subject": "name"}, "name"),
        ("subject_id,ward,age,name", {"id": "subject_id"}, None),
        ("id,ward,age,subject", {"features": ["age", "subject"]}, None),
        ("id,ward,age,subject", {"categorical": ["subject"]}, None),
    ],
)
def test_a_column_of_subjects_is_no_feature(instances, options, subject):
    found, _ = understand(instances, "ward,ill,well", **options)
    assert found.subject == subject
    assert (subject in found.features) is False
    assert "age" in found.features


def test_subjects_are_loaded(tmp_path):
    write(tmp_path / "people.csv", "ward,age,subject\na,1,007\na,2,8\nb,3,\nb,4,007\nc,5,7\nc,6,\n")
    write(tmp_path / "wards.csv", "ward,ill,well\na,1,1\nb,0,2\nc,2,0\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", unbag.UnbagWarning)
        data = unbag.read_tables(tmp_path / "people.csv", tmp_path / "wards.csv")
    assert data.X.column_names == ["age"]
    first, second, missing, again, seven, also_missing = data.subjects.tolist()
    assert first == again
    assert len({first, second, missing, seven, also_missing}) == 5


def test_a_label_that_is_named_as_a_feature_is_one():
    found, _ = understand("bag,label,x", "bag,ill,well", features=["label", "x"])
    assert (found.label, found.features) == (None, ("label", "x"))


@pytest.mark.parametrize(
    ("instances", "groups", "options", "sentence"),
    [
        ("id,row,bag,x", "bag,ill,well", {}, "columns 'id', 'row' could both be meant; .* with --id"),
        ("bag,group,x", "bag,ill,well", {}, "columns 'bag', 'group' could both be meant"),
        ("bag,x", "bag,z,label,more", {"aggregate": "multiple_instance"}, "columns 'z', 'label' could both be meant"),
        ("bag,x", "bag,n,m", {"aggregate": "multiple_instance"}, "no column of observations was found; the others are"),
        ("id,x", "a,b,z", {"members": ["a"]}, "--members must name 2 different columns, got a"),
        ("id,x", "a,b,z", {"members": ["a", "d"]}, "there is no column 'd', which --members names"),
        ("id,x", "a,b,z", {"subject": "who"}, "there is no column 'who', which --subject names"),
        ("id,x", "a,b,z", {"subject": "x", "features": ["x"]}, "the column of subjects cannot be a feature"),
        ("id,x", "a,b,z", {"names": "label"}, "there is no column 'label', which --names names"),
    ],
)
def test_columns_that_leave_a_doubt(instances, groups, options, sentence):
    with pytest.raises(TableError, match=sentence):
        understand(instances, groups, **options)


MEANINGS = {
    "no member is positive": ["bag,negative", "bag,Is-Negative", "bag,not positive"],
    "the two differ": [
        *("a,b,different", "a,b,dissimilar", "a,b,unlike", "a,b,unequal", "a,b,not_same"),
        "a,b,negative:pairwise_similarity",
    ],
    "the two are alike": ["a,b,not different"],
    "the first is higher": ["a,b,higher", "a,b,Greater", "a,b,a is larger than b"],
    "the first is not lower": ["a,b,not_lower"],
    "the first is not higher": ["a,b,not_higher"],
    "the second is farther from the first than the third is": [
        *("a,b,c,farther:triplet_comparison", "a,b,c,b_further:ordinal_triplet")
    ],
    "the second is not nearer to the first than the third is": ["a,b,c,not closer:triplet_comparison"],
    None: [
        *("bag,positive", "bag,z", "a,b,same", "a,b,same_patient", "a,b,lower", "a,b,relation"),
        *("a,b,lower than b:ordinal_rank", "a,b,answer:ordinal_rank", "a,b,c,closer:triplet_comparison"),
        "anchor,near,far,near is closer:ordinal_triplet",
    ],
}


@pytest.mark.parametrize(("meaning", "groups"), [(key, one) for key, names in MEANINGS.items() for one in names])
def test_the_name_of_a_column_tells_what_1_means(meaning, groups):
    groups, _, kind = groups.partition(":")
    _, source = understand("id,bag,x", groups, **({"aggregate": kind} if kind else {}))
    assert source.certain
    assert (source.kind.column.meanings[source.meaning] if source.meaning else None) == meaning


@pytest.mark.parametrize(
    ("groups", "kind", "sentence"),
    [
        ("bag,healthy", None, "call it positive if it is: a member is positive, or negative if it is: no member"),
        ("a,b,second higher", None, "call it lower if it is: the first is lower, .* its meaning with --relation"),
        ("a,b,better", "ordinal_rank", "call it lower if it is"),
        ("a,b,lower_or_equal", "ordinal_rank", "or set its meaning with --relation"),
        ("a,b,c,c closer", "triplet_comparison", "call it closer if it is: the second is nearer"),
        ("a,b,c,similar", "triplet_comparison", "call it closer if it is: the second is nearer"),
        ("a,b,higher", "pairwise_similarity", "call it similar if it is: the two are alike"),
        ("a,b,same,different", None, "columns 'same', 'different' could both be meant"),
    ],
)
def test_a_column_that_leaves_open_what_1_means_is_refused(groups, kind, sentence):
    with pytest.raises(TableError, match=sentence):
        understand("id,bag,x", groups, **({"aggregate": kind} if kind else {}))


@pytest.mark.parametrize(
    ("column", "relation"), [("lower", "<"), ("higher", ">"), ("not_lower", ">="), ("not_higher", "<=")]
)
def test_the_name_of_ranks_tells_the_relation(column, relation):
    _, source = understand("id,x", f"a,b,{column}", aggregate="ordinal_rank")
    assert source.relation == relation


def test_a_relation_that_is_given_goes_before_the_name():
    _, source = understand("id,x", "a,b,better", aggregate="ordinal_rank", relation=">")
    assert source.relation == "<"  # no word of the name; --relation tells
    assert source.certain


def test_groups_are_found_by_names_that_end_differently_and_percentages_are_no_classes():
    of_instances, of_groups = understand("Patient ID,Ward,Age", "Ward name,ill,well,% ill")
    assert (of_instances.group, of_groups.group) == ("Ward", "Ward name")
    assert (of_groups.classes, of_groups.unused) == (("ill", "well"), ("% ill",))
